"""The gate's verdict."""

from __future__ import annotations

from typing import Any

from tasks.gate_ledger import evidence_of, look_at, look_of_run
from tasks.run import Run
from tasks.stage import Context, stage_task
from tracewheel.config import GateSections
from tracewheel.core.files import read_table, write_json
from tracewheel.core.store import Entry
from tracewheel.curation.curated_folder import HELD_OUT, TASKS_FILE
from tracewheel.evaluation.error_budget import Look, level_of
from tracewheel.evaluation.evaluate import RESULTS_FILE
from tracewheel.evaluation.gate import GATE_FILE, decide
from tracewheel.evaluation.power import describe_power


@stage_task("gate", code="tracewheel.evaluation.gate", sections=GateSections)
def decide_gate(
    context: Context[GateSections],
    *,
    challenger: Entry,
    baseline: Entry,
    baseline_name: str,
    look_number: int,
    spent: float,
) -> dict[str, Any]:
    """Compare two evaluations of the same tasks, pair by pair."""
    verdict = decide(
        context.config.gate,
        read_table(challenger.path / RESULTS_FILE),
        read_table(baseline.path / RESULTS_FILE),
        baseline=baseline_name,
        look=Look(look_number, spent),
    ).to_record()
    write_json(context.out / GATE_FILE, verdict)
    return verdict


def power_before(run: Run, curated: Entry) -> dict[str, Any]:
    """What the gate of this run will be able to see, known before anything is trained; see `power.describe_power`."""
    tasks = int((read_table(curated.path / TASKS_FILE)["split"] == HELD_OUT).sum())
    look, spread = look_of_run(run)
    return describe_power(tasks, level_of(run.config.gate, look), spread)


def gate_policy(run: Run, *, challenger: Entry, baseline: Entry, baseline_name: str) -> Entry:
    """The verdict on a challenger, at the level that the ledger of the work folder gives this gate."""
    look = look_at(run, evidence_of(challenger, baseline), baseline_name)
    return decide_gate(
        run,
        challenger=challenger,
        baseline=baseline,
        baseline_name=baseline_name,
        look_number=look.number,
        spent=look.spent,
    )
