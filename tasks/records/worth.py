"""Whether a run is worth its cost: what it may gain, what the gate would see of that, and what past runs cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.engine.run import Run
from tasks.stages.gate import power_before
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json, read_table
from tracewheel.core.run_record import find_runs
from tracewheel.core.store import Entry
from tracewheel.curation.curated_folder import TASKS_FILE, TRAIN
from tracewheel.curation.difficulty import COUNTS_FILE, PassCounts
from tracewheel.evaluation.power import power_at
from tracewheel.evaluation.wording import gain_of
from tracewheel.operations.worth import PastRun, cost_per_point, expected_cost, expected_gain, priced, room_of

DECISION_FILE = "decision.json"


def weigh_worth(run: Run, curated: Entry, sampler: Mapping[str, Any] | None, new_tasks: int) -> dict[str, Any]:
    """The expected gain and cost of a run as JSON types, with a sentence in `says`.

    Args:
        run: The run.
        curated: The tasks that it would learn from.
        sampler: The state of the tasks' posterior at its start.
        new_tasks: Training tasks with new evidence.
    """
    posteriors = training_posteriors(curated.path, sampler)
    room = room_of(posteriors, run.config.rollout.group_size)
    new, past = min(1.0, new_tasks / max(1, len(posteriors))), past_runs(run)
    gain, power = expected_gain(room, new, past), power_before(run, curated)
    seen = power_at(gain.mean, power["tasks"], power["spread"], power["level"]) if "spread" in power else 0.0
    cost = expected_cost(past, prices(run), run.config.schedule.currency)
    price = f"about {cost.says()}" if cost else "cost not known before a run is complete"
    return {
        "room": room,
        "new": new,
        "gain": gain.mean,
        "interval": [gain.low, gain.high],
        "runs": gain.runs,
        "promoted_with": seen,
        "power": power["says"],
        "cost": cost.to_record() if cost else None,
        "says": f"{gain.says()}, which the gate would promote with {seen:.0%}; {price}",
    }


def training_posteriors(curated: Path, sampler: Mapping[str, Any] | None) -> list[tuple[float, float]]:
    """(alpha, beta) of each training task: from the rollouts of earlier runs, else from the logged agent."""
    played = PassCounts.from_json((sampler or {}).get("evidence", {}), "sampler state")
    logged = PassCounts.from_json(read_json(curated / COUNTS_FILE), str(curated / COUNTS_FILE))
    tasks = read_table(curated / TASKS_FILE, ["id", "split"])
    return [(played if task in played else logged).posterior(task) for task in tasks.loc[tasks["split"] == TRAIN, "id"]]


def past_runs(run: Run) -> list[PastRun]:
    """The complete runs of the work folder but this one, the oldest first."""
    found = []
    for record in reversed(find_runs(Path(run.config.work_dir))):
        try:
            summary = record.summary
        except DataError:
            continue  # an estimate can do without a damaged record
        if not summary or record.run_id == run.record.run_id:
            continue
        begun = decided(record.path)
        seconds = sum(summary.get("seconds", {}).values())
        tokens = sum(summary.get("tokens", {}).values())
        gain = summary.get("gate", {}).get("difference")
        found.append(PastRun(gain, begun.get("room"), begun.get("new", 0.0), seconds, tokens))
    return found


def decided(record: Path) -> dict[str, Any]:
    """What was expected of a run when it began; empty for one of an earlier version."""
    path = record / DECISION_FILE
    found = read_json(path).get("worth") if path.is_file() else None
    return found or {}


def worth_afterwards(run: Run, gate: Mapping[str, Any], costs: Mapping[str, Any]) -> dict[str, Any]:
    """What a complete run gained and cost beside what was expected, as JSON types, with a sentence in `says`."""
    spent = priced(sum(costs["seconds"].values()), sum(costs["tokens"].values()), prices(run), run.config.schedule.currency)
    promoted, expected = gate["verdict"] == "promoted", decided(run.record.path)
    point = cost_per_point(spent, gain_of(gate), promoted)
    each = (
        None if point["seconds"] is None else priced(point["seconds"], round(point["tokens"] or 0), prices(run), spent.currency)
    )
    says = f"{each.says()} for each point gained" if each else "no point was gained: the gate refused"
    return {
        "gain": gain_of(gate),
        "expected": expected.get("gain"),
        "interval": expected.get("interval"),
        "cost": spent.to_record(),
        "per_point": point,
        "says": f"{says}; {spent.says()} in all",
    }


def prices(run: Run) -> tuple[float | None, float | None]:
    """Of an hour and of a million tokens."""
    return run.config.schedule.cost_per_hour, run.config.schedule.cost_per_million_tokens


def describe(worth: Mapping[str, Any], wanted: float) -> tuple[bool, Sequence[str]]:
    """Whether a run is worth it, and why not.

    The upper end of the interval decides: a run is skipped when even a lucky one would gain too little. By the mean, a folder
    with few runs, or after some unlucky ones, would stop for ever and never learn better.
    """
    if not wanted or worth["interval"][1] >= wanted:
        return True, (worth["says"],)
    return False, (f"not worth it, at least {100 * wanted:g} points are wanted: {worth['says']}",)
