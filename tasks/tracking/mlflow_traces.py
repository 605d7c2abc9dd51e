"""Traces out of an MLflow tracking store, as the JSON that the reader of MLflow's traces takes."""

from __future__ import annotations

from pathlib import Path

from tracewheel.core.errors import DataError, InfrastructureError

PAGE = 100


def write_traces(file: Path, uri: str, experiment: str, filter: str | None = None) -> int:
    """Write an experiment's traces to a JSONL file, page by page, the oldest first.

    Args:
        file: Where to write. It is for its reader alone: nothing is taken out of the traces yet.
        uri: The tracking store.
        experiment: Name of the experiment.
        filter: Which traces, in MLflow's language, as in `attributes.status = 'OK'`; None for all.

    Returns:
        The number of traces.

    Raises:
        DataError: the experiment does not exist, or the filter is invalid.
        InfrastructureError: the store cannot be reached.
    """
    from mlflow.exceptions import MlflowException

    import mlflow

    client = mlflow.MlflowClient(tracking_uri=uri)
    try:
        found = client.get_experiment_by_name(experiment)
    except MlflowException as error:
        raise InfrastructureError(f"--mlflow-uri {uri}: cannot be read: {error}") from error
    if found is None:
        raise DataError(f"--experiment {experiment}: the store {uri} has no such experiment")
    count, token = 0, None
    with file.open("w", encoding="utf-8") as stream:
        while True:
            try:
                page = client.search_traces(
                    experiment_ids=[found.experiment_id],
                    filter_string=filter,
                    max_results=PAGE,
                    order_by=["timestamp_ms ASC"],
                    page_token=token,
                )
            except MlflowException as error:
                raise DataError(f"--filter {filter}: {error}") from error
            for trace in page:
                stream.write(trace.to_json() + "\n")
                count += 1
            token = page.token
            if not token:
                return count
