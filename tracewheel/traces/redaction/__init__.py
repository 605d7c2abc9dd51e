"""Finds and replaces secrets and personal data before anything is stored."""
