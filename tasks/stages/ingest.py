"""Reading the logs."""

from __future__ import annotations

from typing import Any

from tasks.engine.run import Run
from tasks.engine.stage import Context, stage_task
from tracewheel.config import IngestSections
from tracewheel.core.fingerprint import READING_PACKAGES
from tracewheel.core.store import Entry
from tracewheel.traces.ingest import ingest
from tracewheel.traces.snapshot import Snapshot


@stage_task("ingest", code="tracewheel.traces.ingest", sections=IngestSections, packages=READING_PACKAGES)
def ingest_traces(context: Context[IngestSections], *, snapshot: Snapshot) -> dict[str, Any]:
    """Read the logged traces of a snapshot and quarantine unreadable records."""
    return ingest(context.config.ingest, context.out, snapshot, context.notes)


def ingested(run: Run) -> Entry:
    """What a run reads of the logs, ingested."""
    return ingest_traces(run, snapshot=run.snapshot)
