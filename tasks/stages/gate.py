"""The gate's verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tasks.engine.run import Run
from tasks.engine.stage import Context, stage_task
from tasks.records.gate_ledger import evidence_of, look_at, look_of_run
from tracewheel.config import GateSections
from tracewheel.core.files import read_table
from tracewheel.core.store import Entry
from tracewheel.curation.curated_folder import HELD_OUT, TASKS_FILE
from tracewheel.evaluation import gate_stage
from tracewheel.evaluation.error_budget import Look, level_of
from tracewheel.evaluation.evaluate import RESULTS_FILE
from tracewheel.evaluation.power import describe_power
from tracewheel.evaluation.sequential import SequentialDesign
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
    stopped_at: int | None = None,
    fidelity: float | None = None,
    false_accepts: float | None = None,
) -> dict[str, Any]:
    """Compare two evaluations of the same tasks, pair by pair; `stopped_at` is the look that ended a sequential evaluation.

    `fidelity` is that of the challenger's least faithful update, None where no programs were trained. `false_accepts` is the
    share of failures that the graders might accept, None where nobody asks.
    """
    verdict = gate_stage.decide_gate(
        context.config.gate,
        challenger.path,
        baseline.path,
        context.out,
        baseline_name=baseline_name,
        look=Look(look_number, spent),
        stopped_at=stopped_at,
        fidelity=fidelity,
        false_accepts=false_accepts,
    )
    return verdict.to_record()


def held_out_in(curated: Path) -> int:
    """The number of held-out tasks of a curation."""
    return int((read_table(curated / TASKS_FILE)["split"] == HELD_OUT).sum())


def power_before(run: Run, held_out: int) -> dict[str, Any]:
    """What the gate of this run will be able to see on so many tasks, known before anything is trained."""
    look, spread = look_of_run(run)
    return describe_power(held_out, level_of(run.config.gate, look), spread)


def is_clear(run: Run, challenger: Entry, baseline: Entry, look: int) -> bool:
    """Whether the comparison may end with the held-out tasks played so far; a plan expects it to go on to the end.

    Args:
        look: Number of the look, from 0.
    """
    if look == run.config.gate.looks - 1:
        return True
    ours, theirs = challenger.path / RESULTS_FILE, baseline.path / RESULTS_FILE
    if not (ours.is_file() and theirs.is_file()):
        return False
    place, _ = look_of_run(run)
    design = SequentialDesign.of(level_of(run.config.gate, place), run.config.gate.looks)
    return design.answer_on(run.config.gate, read_table(ours), read_table(theirs), look) != "continue"


def gate_policy(
    run: Run,
    *,
    challenger: Entry,
    baseline: Entry,
    baseline_name: str,
    stopped_at: int | None = None,
    updates: Iterable[Mapping[str, Any]] = (),
    false_accepts: float | None = None,
) -> Entry:
    """The verdict on a challenger, at the level that the ledger of the work folder gives this gate.

    Args:
        stopped_at: The look that ended a sequential evaluation, from 0; None without one.
        updates: The figures of the updates that made the challenger.
        false_accepts: The share of failures that the graders might accept; None where the profile does not ask.
    """
    measured = [update[FIDELITY] for update in updates if FIDELITY in update]
    asked: dict[str, Any] = {} if stopped_at is None else {"stopped_at": stopped_at}
    if measured:
        asked["fidelity"] = min(measured)
    if false_accepts is not None:
        asked["false_accepts"] = false_accepts
    look = look_at(run, evidence_of(challenger, baseline), baseline_name)
    return decide_gate(
        run,
        challenger=challenger,
        baseline=baseline,
        baseline_name=baseline_name,
        look_number=look.number,
        spent=look.spent,
        **asked,
    )
