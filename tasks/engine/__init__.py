"""Prefect and the store, never MLflow."""
