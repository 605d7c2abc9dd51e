"""Prefect tasks, one a stage: they call the domain, keep its output in the store and log to MLflow."""
