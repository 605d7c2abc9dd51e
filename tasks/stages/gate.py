"""The gate's verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tasks.engine.run import Run
from tasks.engine.stage import Context, stage_task
from tasks.records.gate_ledger import evidence_of, look_at, look_of_run, note_verdict
from tracewheel.config import GateSections
from tracewheel.core.files import read_table
from tracewheel.core.store import Entry
from tracewheel.curation.curated_folder import HELD_OUT, TASKS_FILE
from tracewheel.evaluation import gate_stage
from tracewheel.evaluation.error_budget import Look, level_of
from tracewheel.evaluation.power import describe_power
from tracewheel.learner.fidelity import FIDELITY


@stage_task("gate", code="tracewheel.evaluation.gate_stage", sections=GateSections)
def decide_gate(
    context: Context[GateSections],
    *,
    challenger: Entry,
    baseline: Entry,
    baseline_name: str,
    look_number: int,
    spent: float,
    fidelity: float | None = None,
    false_accepts: float | None = None,
    trained: bool = True,
) -> dict[str, Any]:
    """Compare two evaluations of the same tasks, pair by pair.

    `fidelity` is that of the challenger's least faithful update, None where no programs were trained. `false_accepts` is the
    share of failures that the graders might accept, None where nobody asks. `trained`: whether the challenger is another policy
    than the one that training began with.
    """
    verdict = gate_stage.decide_gate(
        context.config.gate,
        challenger.path,
        baseline.path,
        context.out,
        baseline_name=baseline_name,
        look=Look(look_number, spent),
        fidelity=fidelity,
        false_accepts=false_accepts,
        trained=trained,
    )
    return verdict.to_record()


def held_out_in(curated: Path) -> int:
    """The number of held-out tasks of a curation."""
    return int((read_table(curated / TASKS_FILE)["split"] == HELD_OUT).sum())


def power_before(run: Run, held_out: int) -> dict[str, Any]:
    """What the gate of this run will be able to see on so many tasks, known before anything is trained."""
    look, spread = look_of_run(run)
    return describe_power(held_out, level_of(run.config.gate, look), spread)


def gate_policy(
    run: Run,
    *,
    challenger: Entry,
    baseline: Entry,
    baseline_name: str,
    updates: Iterable[Mapping[str, Any]] = (),
    false_accepts: float | None = None,
    trained: bool = True,
) -> Entry:
    """The verdict on a challenger, at the level that the ledger of the work folder gives this gate.

    Args:
        updates: The figures of the updates that made the challenger.
        false_accepts: The share of failures that the graders might accept; None where the profile does not ask.
        trained: Whether the challenger is another policy than the one that training began with.
    """
    measured = [update[FIDELITY] for update in updates if FIDELITY in update]
    asked: dict[str, Any] = {}
    if measured:
        asked["fidelity"] = min(measured)
    if false_accepts is not None:
        asked["false_accepts"] = false_accepts
    if not trained:
        asked["trained"] = False
    evidence = evidence_of(challenger, baseline)
    look = look_at(run, evidence, baseline_name)
    entry = decide_gate(
        run,
        challenger=challenger,
        baseline=baseline,
        baseline_name=baseline_name,
        look_number=look.number,
        spent=look.spent,
        **asked,
    )
    note_verdict(run.config.work_dir, evidence, entry.result["verdict"])
    return entry
