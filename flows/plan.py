"""`retrain --dry-run`: the stages of a run, which results are stored, and an estimate for the rest."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from flows.progress import result_console
from flows.retrain import learn
from tasks.gate import power_before
from tasks.plan import PlanDriver, PlannedCall
from tasks.run import Run, Silent, Used

# The computing stages, as the plan lists them: the name of a unit of work, and the approximate seconds that it
# takes on two CPU cores with the tiny base, used for a work folder without earlier runs.
STAGES = {
    "ingest": ("runs", 1.0),
    "curate": ("runs", 3.0),
    "warm_start": ("runs", 20.0),
    "collect": ("episodes", 0.006),  # sampling them, which workers do before they are collected
    "rollout": ("episodes", 0.006),
    "score": ("episodes", 0.0005),
    "update": ("updates", 2.0),
    "merge": ("runs", 2.0),
    "evaluate": ("episodes", 0.006),
    "gate": ("verdict", 0.1),
}


def make_plan(run: Run) -> dict[str, Any]:
    """What `retrain` would do now.

    Runs the flow itself, with placeholders for missing results. The number of rounds of dynamic sampling is not
    known in advance: the plan has one per iteration.
    """
    with tempfile.TemporaryDirectory(prefix="tracewheel-plan-") as folder:
        plan = PlanDriver(Path(folder))
        planned = replace(run, driver=plan, reporter=Silent(), tracking=None, used=Used())
        power = power_before(planned, learn(planned).curated)
    stages = [_stage(run, stage, calls) for stage in STAGES if (calls := list(plan.calls(stage)))]
    return {
        "run_id": run.record.run_id,
        "complete": run.record.summary is not None and plan.next is None,
        "next": plan.next,
        "stages": stages,
        "estimated_seconds": round(sum(stage["estimated_seconds"] for stage in stages), 1),
        "power": power,
        "estimate": "from earlier runs in this work folder" if run.store.history("rollout") else "rough",
    }


def _stage(run: Run, stage: str, calls: list[PlannedCall]) -> dict[str, Any]:
    """A row of the plan."""
    unit, rough_seconds = STAGES[stage]
    units = sum(call.units for call in calls)
    stored = [call.entry.path for call in calls if call.stored]
    past = run.store.history(stage) if stage != "collect" else []
    seconds = statistics.mean(past) * len(calls) / units if past else rough_seconds
    return {
        "stage": stage,
        "results": len(calls),
        "stored": len(stored),
        "work": f"{units} {unit}",
        "stored_bytes": sum(file.stat().st_size for path in stored for file in path.rglob("*") if file.is_file()),
        "estimated_seconds": round(seconds * sum(call.units for call in calls if not call.stored), 1),
    }


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
            f"{stage['estimated_seconds']:.0f} s",
        )
    console.print(table)
    console.print(f"Gate: {plan['power']['says']}.", markup=False)
    if plan["complete"]:
        console.print("All is stored: the run would show its result again.")
    else:
        console.print(
            f"Next: {plan['next'] or 'report'}. About {plan['estimated_seconds']:.0f} s of computing ({plan['estimate']})."
        )
