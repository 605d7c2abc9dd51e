"""Making the exam of a backtest, and letting policies sit it."""

from __future__ import annotations

from typing import Any

from tasks.evaluate import evaluate_policy
from tasks.run import Policy, Run
from tasks.stage import Context, stage_task
from tracewheel.backtest.exam import make_exam
from tracewheel.config import CurateSections
from tracewheel.core.files import read_table
from tracewheel.core.fingerprint import CURATION_PACKAGES
from tracewheel.core.store import Entry
from tracewheel.evaluation.evaluate import RESULTS_FILE


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
