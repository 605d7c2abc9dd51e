"""Reading the logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.run import Run
from tasks.stage import stage_task
from tracewheel.core.fingerprint import READING_PACKAGES
from tracewheel.traces.ingest import ingest


@stage_task("ingest", code="tracewheel.traces.ingest", sections=("ingest",), packages=READING_PACKAGES)
def ingest_traces(run: Run, out: Path, *, inputs: dict[str, str]) -> dict[str, Any]:
    """Read the logged traces; put aside what cannot be read. `inputs` are the files' digests."""
    return ingest(run.config.ingest, out)
