"""Making the exam of a backtest, letting policies sit it, and what all of it cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from tasks.closing.summary import costs
from tasks.engine.run import Policy, Run
from tasks.engine.stage import Context, stage_task
from tasks.records.ticks import Tick
from tasks.records.worth import prices
from tasks.stages.evaluate import evaluate_policy
from tracewheel.backtest.exam import ASKED_FILE, make_exam
from tracewheel.config import CurateSections
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_table
from tracewheel.core.fingerprint import CURATION_PACKAGES
from tracewheel.core.store import Entry
from tracewheel.curation.curated_folder import TASKS_FILE
from tracewheel.evaluation.evaluate import RESULTS_FILE
from tracewheel.operations.worth import priced


@stage_task("exam", code="tracewheel.backtest.exam", sections=CurateSections, packages=CURATION_PACKAGES)
def set_exam(context: Context[CurateSections], *, traces: Entry, days: list[list[str]], per_day: int | None) -> dict[str, Any]:
    """The tasks that users asked for on each of these days."""
    return make_exam(context.config, traces.path, context.out, days, per_day)


def sit_exam(run: Run, policy: Policy, exam: Entry, blocks: list[str]) -> dict[str, float]:
    """Greedy success of a policy on some blocks of an exam, by task; NaN where an episode is not scored.

    Each block is a result of its own, so that policies of different branches with the same weights sit it once.
    """
    found: dict[str, float] = {}
    for block in blocks:
        done = evaluate_policy(run, policy=policy, curated=exam, split=block, samples=0)
        results = read_table(done.path / RESULTS_FILE, ["task_id", "greedy"])
        found |= dict(zip(results["task_id"], map(float, results["greedy"]), strict=True))
    return found


def blocks_since(exam: Entry, since: datetime) -> list[str]:
    """The blocks with a task that was asked for since a moment."""
    asked = read_table(exam.path / ASKED_FILE, ["task_id", "at"])
    later = set(asked.loc[asked["at"] >= round(since.timestamp() * 1_000_000), "task_id"])
    tasks = read_table(exam.path / TASKS_FILE, ["id", "split"])
    return sorted(set(tasks.loc[tasks["id"].isin(later), "split"]))


def first_served(branches: Iterable[Sequence[Tick]]) -> dict[str, Tick]:
    """Digest of each policy that served to the tick after which it did so first."""
    first: dict[str, Tick] = {}
    for tick in sorted((tick for ticks in branches for tick in ticks if tick.champion), key=lambda tick: tick.moment):
        first.setdefault(str(tick.champion), tick)
    return first


def stored(run: Run, name: str) -> Entry:
    """An entry of the store by its name.

    Raises:
        DataError: it is lost or damaged.
    """
    stage, _, key = name.rpartition("-")
    if entry := run.store.find(stage, key):
        return entry
    raise DataError(f"{run.store.root / name}: lost or damaged; delete the folder of its branch, and it is replayed anew")


def costs_of(run: Run, branches: Mapping[str, Sequence[Tick]]) -> dict[str, Any]:
    """Seconds, tokens and money: of each branch, as if it had been alone, and of the backtest, which made each result once.

    Args:
        run: The run that sat the exams.
        branches: Ticks of each branch by name.
    """

    def spent(names: set[str]) -> dict[str, Any]:
        entries = [entry for name in sorted(names) if (entry := run.store.find(*name.rsplit("-", 1)))]
        found = costs(entries)
        seconds, tokens = sum(found["seconds"].values()), sum(found["tokens"].values())
        total = priced(seconds, tokens, prices(run), run.config.schedule.currency).to_record()
        return {"seconds": found["seconds"], "tokens": found["tokens"], "total": total}

    own = {name: {entry for tick in ticks for entry in tick.entries} for name, ticks in branches.items()}
    sitting = {f"{entry.stage}-{entry.key}" for entry in run.used}
    return {
        "branches": {name: spent(names) for name, names in own.items()},
        "exam": spent(sitting),
        "backtest": spent(set().union(sitting, *own.values())),
        "shared": sum(map(len, own.values())) - len(set().union(*own.values())),
    }
