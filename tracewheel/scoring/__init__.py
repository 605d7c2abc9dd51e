"""Verifiers, rubrics and rewards."""
