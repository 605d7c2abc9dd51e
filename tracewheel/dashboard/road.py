"""The road of a run from the log to the gate, with what came out of each station, and why some of it did not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from tracewheel.core.errors import DataError
from tracewheel.core.run_record import LOOP_FILE
from tracewheel.core.run_state import REFUSED
from tracewheel.curation.curated_folder import REPORT_FILE
from tracewheel.curation.quality import run_funnel
from tracewheel.dashboard.measured import Evaluation, held_out, read_small
from tracewheel.dashboard.progress import Progress
from tracewheel.dashboard.text import percent, points, thousands
from tracewheel.evaluation.wording import gain_of
from tracewheel.operations.intake_record import INTAKE_FILE
from tracewheel.report.finished_run import RL, FinishedRun

Stands = Literal["done", "now", "halted", "ahead"]


@dataclass(frozen=True)
class Station:
    """A station of the road.

    Attributes:
        name: Its heading.
        figure: The number that counts there; "" where it is not known.
        notes: At most three short lines.
        stands: Whether the run is past it, at it, ended there, or is not there yet.
        page: Where it leads, below the run's address.
    """

    name: str
    figure: str = ""
    notes: tuple[str, ...] = ()
    stands: Stands = "ahead"
    page: str = ""


def curation_report(run: FinishedRun) -> dict[str, Any]:
    """The report of a run's curation; empty before it, and where the store has lost it."""
    try:
        return read_small(run.curated / REPORT_FILE)
    except DataError:
        return {}


def stations_of(
    run: FinishedRun, evaluations: list[Evaluation], progress: list[Progress], *, is_running: bool
) -> list[Station]:
    """The eight stations of a run."""
    intake, report = read_small(run.record.path / INTAKE_FILE), curation_report(run)
    rates = held_out(evaluations)
    found = [
        _logs(intake),
        _traces(intake),
        _tasks(report),
        _splits(report),
        _warm_start(run, evaluations),
        _training(run, progress),
        _evaluation(rates),
        _gate(run),
    ]
    ahead = max((place for place, one in enumerate(found) if one.stands == "done"), default=-1)
    passed = [_passed(one, place <= ahead) for place, one in enumerate(found)]
    return passed if is_running else [replace(one, stands="halted") if one.stands == "now" else one for one in passed]


def funnel_of(run: FinishedRun) -> list[dict[str, Any]]:
    """What became of the records of the log, step by step."""
    return run_funnel(curation_report(run), read_small(run.record.path / INTAKE_FILE))


def _passed(station: Station, behind: bool) -> Station:
    if station.stands != "ahead" or not behind:
        return station
    return Station(station.name, station.figure, station.notes or ("no figures kept",), "done", station.page)


def _logs(intake: Mapping[str, Any]) -> Station:
    if not intake:
        return Station("Logs", page="/traces")
    notes = [f"{thousands(intake.get('quarantined', 0))} cannot be read", f"{thousands(intake.get('duplicates', 0))} copies"]
    if intake.get("held"):
        notes.append(f"{thousands(intake['held'])} held back")
    return Station("Logs", f"{thousands(intake.get('found', intake.get('read')))} records", tuple(notes), "done", "/traces")


def _traces(intake: Mapping[str, Any]) -> Station:
    if "kept" not in intake:
        return Station("Traces", page="/traces")
    notes = [f"of {thousands(intake.get('read'))} read"]
    if outcomes := intake.get("outcomes"):
        notes.append(f"{thousands(outcomes.get('traces', 0))} with an outcome said later")
    return Station("Traces", f"{thousands(intake['kept'])} kept", tuple(notes), "done", "/traces")


def _tasks(report: Mapping[str, Any]) -> Station:
    funnel = report.get("funnel") or {}
    if not funnel:
        return Station("Tasks", page="/tasks")
    share = (report.get("agreement") or {}).get("share")
    notes = [f"from {thousands(funnel.get('replayed'))} episodes"]
    if share is not None:
        notes.append(f"replay agrees {percent(share)}")
    return Station("Tasks", f"{thousands(funnel.get('tasks'))} tasks", tuple(notes), "done", "/tasks")


def _splits(report: Mapping[str, Any]) -> Station:
    sides = report.get("splits") or {}
    if not sides:
        return Station("Splits", page="/tasks")
    counts = {name: (side or {}).get("tasks", 0) for name, side in sides.items()}
    notes = [
        f"{counts.get('validation', 0)} validation",
        f"{counts.get('held_out', 0)} held out",
        f"{counts.get('harder', 0)} harder",
    ]
    return Station("Splits", f"{counts.get('train', 0)} to train on", tuple(notes), "done", "/tasks")


def _warm_start(run: FinishedRun, evaluations: list[Evaluation]) -> Station:
    made = _of_stage(run, "warm_start")
    if not made:
        return Station("Warm start")
    before = [one for one in evaluations if one.split == "validation" and one.greedy]
    words = [f"{one.policy.replace('_', ' ')} {percent(one.greedy.value)}" for one in before if one.greedy and _is_start(one)]
    notes = ("greedy, on validation:", *words[:2]) if words else ()
    return Station("Warm start", f"{made} adapter{'s' * (made > 1)}", notes, "done", "#policies")


def _training(run: FinishedRun, progress: list[Progress]) -> Station:
    done = sum(one.done for one in progress)
    planned = sum(one.planned or 0 for one in progress)
    ended = bool(run.summary) or any(True for _ in _stages(run, "gate"))
    started = (run.record.path / LOOP_FILE).is_file() or len(progress) > 1
    if not started:
        return Station("Learning", f"0 of {planned}" if planned else "", (), "ahead", "/rollouts")
    notes = [f"{thousands(run.summary['episodes'])} episodes"] if run.summary.get("episodes") else []
    if run.summary.get("best_iteration") is not None:
        notes.append(f"iteration {run.summary['best_iteration']} chosen")
    stands: Stands = "done" if ended or (planned and done >= planned) else "now"
    return Station("Learning", f"{done} of {planned or '?'} iterations", tuple(notes), stands, "/rollouts")


def _evaluation(rates: Mapping[str, Evaluation]) -> Station:
    after = rates.get(RL)
    if after is None or after.greedy is None:
        return Station("Evaluation", page="#policies")
    notes = (f"greedy, of {after.greedy.n} held out", f"{percent(after.greedy.low)} to {percent(after.greedy.high)}")
    return Station("Evaluation", percent(after.greedy.value), notes, "done", "#policies")


def _gate(run: FinishedRun) -> Station:
    gate = run.gate
    if not gate:
        return Station("Gate", page="#gate")
    notes = []
    if (gain := gain_of(gate)) is not None:
        notes.append(f"{points(gain)} points over")
        notes.append(str(gate.get("baseline", "")).replace("_", " ")[:28])
    if gate.get("gained") is not None:
        notes.append(f"{gate['gained']} gained, {gate['lost']} lost")
    verdict = str(gate.get("verdict", ""))
    return Station("Gate", verdict, tuple(notes), "halted" if verdict == REFUSED else "done", "#gate")


def _is_start(evaluation: Evaluation) -> bool:
    """Whether it is of a policy from which the loop may start, which the warm start made."""
    return evaluation.policy.startswith("warm_start")


def _of_stage(run: FinishedRun, stage: str) -> int:
    return sum(1 for _ in _stages(run, stage))


def _stages(run: FinishedRun, stage: str) -> list[Any]:
    try:
        return list(run.of_stage(stage))
    except DataError:
        return []
