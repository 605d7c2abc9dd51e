"""Prefect flows: order and branching only; and the command line."""
