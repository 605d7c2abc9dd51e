"""The data that a run learns from and is measured on, as MLflow dataset inputs."""

from __future__ import annotations

from tasks.run import Run
from tracewheel.store import Entry


def log_datasets(run: Run, traces: Entry, curated: Entry) -> None:
    """Log the ingested traces and the curated tasks with their digests."""
    if run.tracking:
        run.tracking.log_datasets({"traces": traces, "curated tasks": curated}, {"traces": "logs", "curated tasks": "training"})
