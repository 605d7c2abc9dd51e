"""Making tasks out of traces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.engine.stage import Call, Context, Expected, stage_task
from tracewheel.config import CurateSections
from tracewheel.core.fingerprint import CURATION_PACKAGES
from tracewheel.core.store import Entry
from tracewheel.core.types import Task
from tracewheel.curation.curate import HowTo, curate
from tracewheel.curation.curated_folder import HARDER, HELD_OUT, TASKS_FILE, TRAIN, VALIDATION
from tracewheel.curation.pass_counts import KeptPassCounts
from tracewheel.curation.split_record import SplitRecord


def expected(call: Call, place: int) -> Expected:
    """As many tasks as the profile asks for. How many are of a specialist's families is not known: as many for each."""
    config = call.run.config
    specialists = config.training.specialists
    groups = list(specialists.groups.values()) if specialists else [("any",)]
    wanted = {
        TRAIN: config.curation.train_tasks,
        VALIDATION: config.curation.validation_tasks,
        HELD_OUT: config.curation.held_out_tasks,
        HARDER: config.curation.harder_tasks,
    }
    rows = [
        {"split": split, **_placeholder(f"{split} {number} of {families}", families[number % len(families)]).to_record()}
        for split, tasks in wanted.items()
        for families in (groups if split == TRAIN else groups[:1])
        for number in range(tasks)
    ]

    def write(out: Path) -> None:
        import pandas

        pandas.DataFrame(rows).to_parquet(out / TASKS_FILE, index=False)

    return Expected(write=write)


def _placeholder(name: str, family: str) -> Task:
    return Task(name, "", family, 0, "", {}, {}, "", name)


@stage_task("curate", code="tracewheel.curation.curate", sections=CurateSections, expects=expected, packages=CURATION_PACKAGES)
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
