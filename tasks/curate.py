"""Making tasks out of traces."""

from __future__ import annotations

from typing import Any

from tasks.stage import Context, stage_task
from tracewheel.config import CurateSections
from tracewheel.core.fingerprint import CURATION_PACKAGES
from tracewheel.core.store import Entry
from tracewheel.curation.curate import curate
from tracewheel.curation.evidence import KeptEvidence


@stage_task("curate", code="tracewheel.curation.curate", sections=CurateSections, packages=CURATION_PACKAGES)
def curate_tasks(context: Context[CurateSections], *, traces: Entry, earlier: Entry | None = None) -> dict[str, Any]:
    """Replay and verify the traces, make tasks of them, split, and check for leaks.

    `earlier` is the curation of an earlier run, whose pass rates are gone on with.
    """
    kept = KeptEvidence.read(earlier.path) if earlier else None
    return curate(context.config, traces.path, context.out, kept)
