"""MLflow, never Prefect."""
