"""The stages: one Prefect task each."""
