"""`retrain --dry-run`: the stages of a run, which results are stored, and an estimate for the rest."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from flows.console.look import result_console
from flows.retrain import learn, prepare
from tasks.engine.foresight import Foresight, foresee_run, is_tiny
from tasks.engine.plan import PlanDriver, PlannedCall
from tasks.engine.run import Run, Silent, Used
from tasks.records.decisions import foresee
from tasks.stages.gate import power_before
from tracewheel.config.placement import placed
from tracewheel.rollout.foresight import GIB, to_record

# The computing stages, as the plan lists them: the name of a unit of work, and the approximate seconds that it
# takes on two CPU cores with the tiny base, used for that base and a work folder without earlier runs.
STAGES = {
    "ingest": ("runs", 1.0),
    "curate": ("runs", 3.0),
    "warm_start": ("runs", 20.0),
    "collect": ("episodes", 0.006),  # sampling them, which workers do before they are collected
    "rollout": ("episodes", 0.006),
    "score": ("episodes", 0.0005),
    "update": ("updates", 2.0),
    "rate_trials": ("updates", 1.0),
    "merge": ("runs", 2.0),
    "evaluate": ("episodes", 0.006),
    "audit": ("runs", 30.0),
    "gate": ("verdict", 0.1),
}
# How long these take depends on the model. For another than the tiny base an earlier run tells, or a measured pass.
MODEL_WORK = ("warm_start", "collect", "rollout", "update", "merge", "evaluate")


def make_plan(run: Run) -> dict[str, Any]:
    """What `retrain` would do now.

    Runs the flow itself, with placeholders for missing results. The number of rounds of dynamic sampling is not
    known in advance: the plan has one per iteration. `estimated_seconds` is None, for a stage and for all, where it is unknown.

    Raises:
        ConfigError: the run cannot fit the machine; the message names the settings to change.
    """
    with tempfile.TemporaryDirectory(prefix="tracewheel-plan-") as folder:
        plan = PlanDriver(Path(folder))
        planned = replace(run, driver=plan, reporter=Silent(), tracking=None, used=Used())
        prepared = prepare(planned)
        curated = learn(planned, prepared).curated
        power = power_before(planned, curated)
        schedule = foresee(planned, curated, prepared.start)
        foresight = foresee_run(run, curated.path) if plan.next else None
    if foresight:
        foresight.check()
    stages = [_stage(run, stage, calls, foresight) for stage in STAGES if (calls := list(plan.calls(stage)))]
    return {
        "run_id": run.record.run_id,
        "complete": run.record.summary is not None and plan.next is None,
        "next": plan.next,
        "stages": stages,
        "estimated_seconds": _sum([stage["estimated_seconds"] for stage in stages]),
        "power": power,
        "schedule": schedule,
        "placement": [{"part": part.part, "gpus": list(part.cards), "memory": part.memory} for part in placed(run.config)],
        "estimate": _basis(run, [stage["stage"] for stage in stages if stage["estimated_seconds"] is None], foresight),
        "memory": to_record(foresight.needs, foresight.limits) if foresight else [],
    }


def _stage(run: Run, stage: str, calls: list[PlannedCall], foresight: Foresight | None) -> dict[str, Any]:
    """A row of the plan."""
    unit, rough_seconds = STAGES[stage]
    measured = foresight.seconds.get(stage) if foresight else None
    units = sum(call.units for call in calls)
    stored = [call.entry.path for call in calls if call.stored]
    past = run.store.history(stage) if stage != "collect" else []
    seconds = statistics.mean(past) * len(calls) / units if past else measured or rough_seconds
    missing = sum(call.units for call in calls if not call.stored)
    fixed = 0.0
    if foresight and measured and not past:
        fixed = foresight.each_call.get(stage, 0.0) * sum(not call.stored for call in calls)
    known = past or measured or not missing or stage not in MODEL_WORK or is_tiny(run.config)
    return {
        "stage": stage,
        "results": len(calls),
        "stored": len(stored),
        "work": f"{units} {unit}",
        "stored_bytes": sum(file.stat().st_size for path in stored for file in path.rglob("*") if file.is_file()),
        "estimated_seconds": round(seconds * missing + fixed, 1) if known else None,
    }


def _of(available: int | None) -> str:
    return "" if available is None else f"; {available / GIB:.1f} GiB are available"


def _sum(seconds: list[float | None]) -> float | None:
    known = [value for value in seconds if value is not None]
    return round(sum(known), 1) if len(known) == len(seconds) else None


def _basis(run: Run, unknown: list[str], foresight: Foresight | None) -> str:
    """What the estimate is made from."""
    if unknown:
        return f"unknown: no {', '.join(unknown)} of this base has run in this work folder yet"
    if run.store.history("rollout"):
        return "from earlier runs in this work folder"
    return "from a measured pass of the base" if foresight else "rough"


def placement_table(placement: list[dict[str, Any]]) -> Table:
    """Which GPUs each part of a run takes, and how much of their memory."""
    table = Table("part", "GPUs", "memory", title="Placement")
    for row in placement:
        table.add_row(row["part"], ", ".join(map(str, row["gpus"])), row["memory"])
    return table


def show_plan(plan: Mapping[str, Any]) -> None:
    """Print the plan as a table."""
    console = result_console()
    table = Table(title=f"Plan of run {plan['run_id']}")
    table.add_column("stage")
    for heading in ("stored", "work", "on disk", "still to take"):
        table.add_column(heading, justify="right")
    for stage in plan["stages"]:
        table.add_row(
            stage["stage"],
            f"{stage['stored']} of {stage['results']}",
            stage["work"],
            f"{stage['stored_bytes'] / 1e6:.1f} MB",
            "unknown" if stage["estimated_seconds"] is None else f"{stage['estimated_seconds']:.0f} s",
        )
    console.print(table)
    if plan["placement"]:
        console.print(placement_table(plan["placement"]))
    console.print(f"Gate: {plan['power']['says']}.", markup=False)
    if schedule := plan["schedule"]:
        would = {True: "would start now", False: "would be skipped", None: "may start"}[schedule["starts"]]
        console.print(f"Schedule: a scheduled run {would}: {schedule['why']}.", markup=False, soft_wrap=True)
    for need in plan["memory"]:
        console.print(f"Memory: {need['says']}{_of(need['available_bytes'])}.", markup=False, soft_wrap=True)
    if plan["complete"]:
        console.print("All is stored: the run would show its result again.")
    else:
        seconds = plan["estimated_seconds"]
        time = f"About {seconds:.0f} s of computing ({plan['estimate']})" if seconds is not None else f"Time {plan['estimate']}"
        console.print(f"Next: {plan['next'] or 'report'}. {time}.")
