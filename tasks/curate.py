"""Making tasks out of traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.run import Run
from tasks.stage import stage_task
from tracewheel.curate import curate
from tracewheel.store import Entry


@stage_task("curate", code="tracewheel.curate", sections=("seed", "environment", "curation"))
def curate_tasks(run: Run, out: Path, *, traces: Entry) -> dict[str, Any]:
    """Replay and verify the traces, make tasks of them, split, and check for leaks."""
    return curate(run.config, traces.path, out)
