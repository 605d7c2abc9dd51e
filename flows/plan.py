"""`retrain --dry-run`: the stages of a run, what of them is stored, and what the rest may take."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from flows.progress import result_console
from flows.retrain import FINAL_SPLITS, learn
from tasks.run import Run
from tasks.stage import NotStored
from tracewheel.sampling.schedule import VALIDATION_SAMPLES, validates

# Seconds for one unit of work on two CPU cores with the tiny base, for a work folder without a past.
ROUGH_SECONDS = {
    "ingest": 1.0,
    "curate": 3.0,
    "warm_start": 20.0,
    "rollout": 0.006,
    "collect": 0.006,  # sampling them, which workers do before they are collected
    "score": 0.0005,
    "update": 2.0,
    "merge": 2.0,
    "evaluate": 0.006,
}
UNITS = {
    "rollout": "episodes",
    "collect": "episodes",
    "score": "episodes",
    "evaluate": "episodes",
    "update": "updates",
    "gate": "verdict",
}


def make_plan(run: Run) -> dict[str, Any]:
    """What `retrain` would do now.

    Stages are looked for in the order they run, up to the first that is not stored; what comes after
    depends on it and counts as still to do.
    """
    planning = Run(run.config, run.store, run.record, planning=True)
    try:
        learn(planning)
        missing = None
    except NotStored as error:
        missing = str(error)
    distinct = Counter(entry.stage for entry in planning.used)
    sizes: Counter[str] = Counter()
    for entry in planning.used:
        sizes[entry.stage] += sum(file.stat().st_size for file in entry.path.rglob("*") if file.is_file())
    stages: list[dict[str, Any]] = []
    for stage, (calls, units) in amounts(run, champion="champion" in distinct).items():
        # Calls with equal inputs share a result, so a whole run may hold fewer results than it has calls.
        # Dynamic sampling makes more of them, how many more is not known before.
        results = max(calls, distinct[stage])
        stored = results if missing is None else min(results, distinct[stage])
        seconds = (results - stored) * units / calls * _seconds_a_unit(run, stage, units / calls)
        stages.append(
            {
                "stage": stage,
                "results": results,
                "stored": stored,
                "work": f"{units} {UNITS.get(stage, 'runs')}",
                "stored_bytes": sizes[stage],
                "estimated_seconds": round(seconds, 1),
            }
        )
    return {
        "run_id": run.record.run_id,
        "complete": run.record.summary is not None and missing is None,
        "next": missing,
        "stages": stages,
        "estimated_seconds": round(sum(stage["estimated_seconds"] for stage in stages), 1),
        "estimate": "from earlier runs in this work folder" if run.store.history("rollout") else "rough",
    }


def amounts(run: Run, *, champion: bool) -> dict[str, tuple[int, int]]:
    """For each stage: how many results it makes in a run, and how many units of work that is in all."""
    config, training = run.config, run.config.training
    specialists = training.specialists
    loops, merges, starts = (1, 0, 0) if specialists is None else amounts_of_specialists(run)
    each = (specialists and specialists.iterations) or training.iterations
    episodes_each = min(training.tasks_per_iteration, config.curation.train_tasks) * config.rollout.group_size
    if training.episodes:
        each = max(1, min(each, training.episodes // episodes_each))
    iterations = loops * each
    episodes = iterations * episodes_each
    policies = 5 if champion else 4
    alike = training.model_copy(update={"iterations": each})
    candidates = loops * len([number for number in range(1, each + 1) if validates(alike, number)])
    validations = candidates + merges + starts + policies - 1
    tasks = {"held_out": config.curation.held_out_tasks, "harder": config.curation.harder_tasks}
    evaluated = validations * config.curation.validation_tasks * (1 + VALIDATION_SAMPLES)
    evaluated += policies * sum(tasks[split] for split in FINAL_SPLITS) * (1 + config.evaluation.samples)
    return {
        "ingest": (1, 1),
        "curate": (1, 1),
        "warm_start": (2 + starts, 2 + starts),
        "collect" if config.rollout.mode == "async" else "rollout": (iterations, episodes),
        "score": (iterations, episodes),
        "update": (iterations, iterations),
        **({"merge": (merges, merges)} if merges else {}),
        "evaluate": (validations + policies * len(FINAL_SPLITS), evaluated),
        "gate": (1, 1),
    }


def amounts_of_specialists(run: Run) -> tuple[int, int, int]:
    """How many specialists there are, how many merges of them, and how many warm starts in shapes of their own."""
    specialists, lora = run.config.training.specialists, run.config.warm_start.lora
    assert specialists is not None
    shapes = {lora.of(families) for families in specialists.groups.values()} - {None}
    loops = len(specialists.groups)
    return loops, len(specialists.merges) if loops > 1 else 0, len(shapes)


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
    if plan["complete"]:
        console.print("All is stored: the run would show its result again.")
    else:
        console.print(
            f"Next: {plan['next'] or 'report'}. About {plan['estimated_seconds']:.0f} s of computing ({plan['estimate']})."
        )


def _seconds_a_unit(run: Run, stage: str, units_a_call: float) -> float:
    past = run.store.history(stage) if stage != "collect" else []
    return statistics.mean(past) / units_a_call if past else ROUGH_SECONDS.get(stage, 0.1)
