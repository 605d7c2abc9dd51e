"""Making tasks out of traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.run import Run
from tasks.stage import stage_task
from tracewheel.core.fingerprint import CURATION_PACKAGES
from tracewheel.core.store import Entry
from tracewheel.curation.curate import curate
from tracewheel.curation.evidence import KeptEvidence


@stage_task(
    "curate", code="tracewheel.curation.curate", sections=("seed", "environment", "curation"), packages=CURATION_PACKAGES
)
def curate_tasks(run: Run, out: Path, *, traces: Entry, earlier: Entry | None = None) -> dict[str, Any]:
    """Replay and verify the traces, make tasks of them, split, and check for leaks.

    `earlier` is the curation of an earlier run, whose pass rates are gone on with.
    """
    return curate(run.config, traces.path, out, KeptEvidence.read(earlier.path) if earlier else None)
