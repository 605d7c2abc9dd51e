"""Reading the logs."""

from __future__ import annotations

from typing import Any

from tasks.stage import Context, stage_task
from tracewheel.config import IngestSections
from tracewheel.core.fingerprint import READING_PACKAGES
from tracewheel.traces.ingest import ingest


@stage_task("ingest", code="tracewheel.traces.ingest", sections=IngestSections, packages=READING_PACKAGES)
def ingest_traces(context: Context[IngestSections], *, inputs: dict[str, str]) -> dict[str, Any]:
    """Read the logged traces and quarantine unreadable records. `inputs` are the files' digests."""
    return ingest(context.config.ingest, context.out)
