"""Making tasks out of traces."""

from __future__ import annotations

from typing import Any

from tasks.engine.stage import Context, stage_task
from tracewheel.config import CurateSections
from tracewheel.core.fingerprint import CURATION_PACKAGES
from tracewheel.core.store import Entry
from tracewheel.curation.curate import HowTo, curate
from tracewheel.curation.difficulty import KeptPassCounts
from tracewheel.curation.split_record import SplitRecord


@stage_task("curate", code="tracewheel.curation.curate", sections=CurateSections, packages=CURATION_PACKAGES)
def curate_tasks(
    context: Context[CurateSections],
    *,
    traces: Entry,
    earlier: Entry | None = None,
    splits: Entry | None = None,
    splits_lost: bool = False,
) -> dict[str, Any]:
    """Replay and verify the traces, make tasks of them, split, and check for leaks.

    `earlier` is the curation of an earlier run, to resume pass rates from; `splits` is the one to resume splits from, and
    `splits_lost` says that there was one.
    """
    kept = KeptPassCounts.read(earlier.path) if earlier else None
    record = SplitRecord.of_curated(splits.path) if splits else SplitRecord(lost=True) if splits_lost else None
    how = HowTo(reuse=context.reuse, say=context.reporter.say)
    return curate(context.config, traces.path, context.out, kept, record, how)
