"""`retrain --dry-run`: the stages of a run, which results are stored, and an estimate for the rest."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from flows.console.look import result_console
from flows.opening import foreseen_facts
from tasks.engine.foresight import Foresight, foresee_run, is_tiny
from tasks.engine.plan import Found, Lookup, known_of, stages_of
from tasks.engine.run import Run
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
    "evaluate": ("episodes", 0.006),
    "audit": ("runs", 30.0),
    "gate": ("verdict", 0.1),
}
# How long these take depends on the model. For another than the tiny base an earlier run tells, or a measured pass.
MODEL_WORK = ("warm_start", "collect", "rollout", "update", "evaluate")


def make_plan(run: Run) -> dict[str, Any]:
    """What `retrain` would do now.

    The number of rounds of dynamic sampling is not known in advance: the plan has one per iteration. `estimated_seconds` is
    None, for a stage and for all, where it is unknown. `made` says of each missing result why it would be made.

    Raises:
        ConfigError: the run cannot fit the machine; the message names the settings to change.
    """
    ingest, curate, *_ = stages_of(run.config)
    lookup = Lookup(run, {})
    traces = lookup.find(ingest).entry
    start = foreseen_facts(run, traces)
    lookup = Lookup(run, start)
    lookup.find(ingest)
    curated = lookup.find(curate).entry
    found = [lookup.find(planned) for planned in stages_of(run.config, known_of(run, start, curated))]
    missing = [one for one in found if one.entry is None]
    foresight = foresee_run(run, curated.path if curated else None) if missing else None
    if foresight:
        foresight.check()
    calls = {stage: [one for one in found if one.planned.stage == stage] for stage in STAGES}
    stages = [_stage(run, stage, of_stage, foresight) for stage, of_stage in calls.items() if of_stage]
    unknown = [stage["stage"] for stage in stages if stage["estimated_seconds"] is None]
    return {
        "run_id": run.record.run_id,
        "complete": run.record.summary is not None and not missing,
        "next": missing[0].planned.label if missing else None,
        "stages": stages,
        "made": [{"label": one.planned.label, "why": one.why} for one in missing],
        "estimated_seconds": None if unknown else round(sum(stage["estimated_seconds"] for stage in stages), 1),
        "power": power_before(run, curated),
        "schedule": foresee(run, curated, start),
        "placement": [{"part": part.part, "gpus": list(part.cards), "memory": part.memory} for part in placed(run.config)],
        "estimate": _basis(run, unknown, foresight),
        "memory": to_record(foresight.needs, foresight.limits) if foresight else [],
    }


def _stage(run: Run, stage: str, calls: list[Found], foresight: Foresight | None) -> dict[str, Any]:
    """A row of the plan."""
    unit, rough_seconds = STAGES[stage]
    measured = foresight.seconds.get(stage) if foresight else None
    past = run.store.history(stage) if stage != "collect" else []
    missing = [call.planned.units for call in calls if call.entry is None]
    seconds = (measured or rough_seconds) * sum(missing)
    if past:
        seconds = statistics.mean(past) * len(missing)
    elif foresight and measured:
        seconds += foresight.each_call.get(stage, 0.0) * len(missing)
    known = past or measured or not missing or stage not in MODEL_WORK or is_tiny(run.config)
    files = (file for call in calls if call.entry for file in call.entry.path.rglob("*") if file.is_file())
    return {
        "stage": stage,
        "results": len(calls),
        "stored": len(calls) - len(missing),
        "work": f"{sum(call.planned.units for call in calls)} {unit}",
        "stored_bytes": sum(file.stat().st_size for file in files),
        "estimated_seconds": round(seconds, 1) if known else None,
    }


def _basis(run: Run, unknown: list[str], foresight: Foresight | None) -> str:
    """What the estimate is made from."""
    if unknown:
        return f"unknown: no {', '.join(unknown)} of this base has run in this work folder yet"
    if run.store.history("rollout"):
        return "from earlier runs in this work folder"
    return "from a measured pass of the base" if foresight else "rough"


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
        cards = Table("part", "GPUs", "memory", title="Placement")
        for row in plan["placement"]:
            cards.add_row(row["part"], ", ".join(map(str, row["gpus"])), row["memory"])
        console.print(cards)
    console.print(f"Gate: {plan['power']['says']}.", markup=False)
    if schedule := plan["schedule"]:
        would = {True: "would start now", False: "would be skipped", None: "may start"}[schedule["starts"]]
        console.print(f"Schedule: a scheduled run {would}: {schedule['why']}.", markup=False, soft_wrap=True)
    for need in plan["memory"]:
        free = "" if need["available_bytes"] is None else f"; {need['available_bytes'] / GIB:.1f} GiB are available"
        console.print(f"Memory: {need['says']}{free}.", markup=False, soft_wrap=True)
    if plan["complete"]:
        console.print("All is stored: the run would show its result again.")
    else:
        seconds = plan["estimated_seconds"]
        time = f"About {seconds:.0f} s of computing ({plan['estimate']})" if seconds is not None else f"Time {plan['estimate']}"
        console.print(f"Next: {plan['next'] or 'report'}. {time}.")
        for why, labels in _by_reason(plan["made"]).items():
            console.print(f"Made: {labels}: {why}.", markup=False, soft_wrap=True)


def _by_reason(made: list[dict[str, str]]) -> dict[str, str]:
    """Why results would be made to which: the first, and how many more."""
    labels: dict[str, list[str]] = {}
    for one in made:
        if not one["why"].endswith("is made first"):
            labels.setdefault(one["why"], []).append(one["label"])
    return {why: f"{of[0]}{f' and {len(of) - 1} more' if of[1:] else ''}" for why, of in labels.items()}
