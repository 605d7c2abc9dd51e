"""Environments of other projects, each in a Python of its own: their pins clash with ours."""
