"""Secrets and personal data are found and replaced before anything is stored."""
