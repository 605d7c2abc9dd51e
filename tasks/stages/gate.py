"""The gate's verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from tasks.engine.run import Run
from tasks.engine.stage import Context, stage_task
from tasks.records.gate_ledger import evidence_of, look_of_run, note, note_verdict
from tasks.stages.candidate import first_look
from tracewheel.config import GateSections
from tracewheel.core.files import read_table
from tracewheel.core.store import Entry
from tracewheel.curation.curated_folder import HELD_OUT, TASKS_FILE, load_components
from tracewheel.evaluation import gate_stage
from tracewheel.evaluation.candidate import SCREEN
from tracewheel.evaluation.error_budget import Look, cost_of_the_plan, level_of
from tracewheel.evaluation.power import describe_power
from tracewheel.learner.fidelity import FIDELITY


@stage_task("gate", code="tracewheel.evaluation.gate_stage", sections=GateSections)
def decide_gate(
    context: Context[GateSections],
    *,
    challenger: Entry,
    baseline: Entry,
    baseline_name: str,
    look: dict[str, Any],
    level: float | None = None,
    fidelity: float | None = None,
    false_accepts: float | None = None,
    trained: bool = True,
) -> dict[str, Any]:
    """Compare two evaluations of the same tasks, pair by pair.

    `look` has the fields of a `Look`; `level` replaces its own. `fidelity` is that of the challenger's least faithful update,
    None where no programs were trained. `false_accepts` is the share of failures that the graders might accept, None
    where nobody asks. `trained`: whether the challenger is another policy than the one that training began with.
    """
    verdict = gate_stage.decide_gate(
        context.config.gate,
        challenger.path,
        baseline.path,
        context.out,
        baseline_name=baseline_name,
        look=Look(**look),
        level=level,
        fidelity=fidelity,
        false_accepts=false_accepts,
        trained=trained,
    )
    return verdict.to_record()


def power_before(run: Run, curated: Entry | None) -> dict[str, Any]:
    """What the gate of this run will be able to see in one night, known before anything is trained."""
    look, spread = look_of_run(run, first_look(run, curated))
    level = level_of(run.config.gate, look)
    if not curated:
        return describe_power(run.config.curation.held_out_tasks, level, spread)
    tasks, component_of = read_table(curated.path / TASKS_FILE), load_components(curated.path)
    held_out = tasks.loc[tasks["split"] == HELD_OUT, "id"]
    return describe_power(len(held_out), level, spread, len({component_of.get(task, task) for task in held_out}))


def gate_policy(
    run: Run,
    *,
    challenger: Entry,
    baseline: Entry,
    baseline_name: str,
    first: Look | None,
    updates: Iterable[Mapping[str, Any]] = (),
    false_accepts: float | None = None,
    trained: bool = True,
) -> dict[str, Any]:
    """The verdict on a challenger, at the level that the ledger of the work folder gives this gate; its record.

    Args:
        first: Says which kind of look it is; None where the baseline is the candidate, and this is only the screen.
        updates: The figures of the updates that made the challenger.
        false_accepts: The share of failures that the graders might accept; None where the profile does not ask.
        trained: Whether the challenger is another policy than the one that training began with; if not, nothing is asked.
    """
    measured = [update[FIDELITY] for update in updates if FIDELITY in update]
    may_ask = {
        "fidelity": min(measured, default=None),
        "false_accepts": false_accepts,
        "trained": None if trained else False,
        "level": SCREEN if first is None else None,
    }
    asked: dict[str, Any] = {name: value for name, value in may_ask.items() if value is not None}
    evidence, noted = evidence_of(challenger, baseline), trained and first is not None
    gate = {"evidence": evidence, "run": run.record.run_id, "baseline": baseline_name}
    look = note(run.config.work_dir, run.config.gate, gate, first=first) if noted else Look()
    entry = decide_gate(run, challenger=challenger, baseline=baseline, baseline_name=baseline_name, look=asdict(look), **asked)
    if noted:
        note_verdict(run.config.work_dir, evidence, entry.result["verdict"])
    found: dict[str, Any] = entry.result
    if found["cause"] == "too_few_tasks" and (cost := cost_of_the_plan(run.config.gate, look, found["p_value"])):
        found = {**found, "reasons": [*found["reasons"], cost], "advice": cost}
    return found
