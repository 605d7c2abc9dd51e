"""How far the scores agree with people: the calibration of verifiers by the labels of trajectories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracewheel.core.statistics import wilson_interval
from tracewheel.operations.labels import GRADER, RIGHT, Label

SCORE = "score"
RANDOM = "random"


@dataclass(frozen=True)
class Scored:
    """The score of a labelled trajectory.

    Attributes:
        task: The task; trajectories of one task are not independent.
        total: None where it could not be scored.
        breakdown: Part of the score to its value.
    """

    task: str
    family: str
    total: float | None
    breakdown: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Agreement:
    """How often a grader says what people say.

    Attributes:
        grader: `score`, or a part of it.
        group: "" for all, `family NAME`, or `random sample`.
        labelled, agreeing: Trajectories.
        tasks: Their tasks.
        rate: Mean over tasks; None without any.
        interval: Wilson's 95% interval with a task as one trial.
        too_mild, too_strict: Disagreements: it passes what people call wrong; it fails what they call right.
    """

    grader: str
    group: str
    labelled: int
    agreeing: int
    tasks: int
    rate: float | None
    interval: tuple[float, float] | None
    too_mild: int
    too_strict: int


@dataclass(frozen=True)
class _Trial:
    task: str
    family: str
    is_random: bool
    truth: bool
    said: Mapping[str, bool]


def calibrate(labels: Sequence[Label], scores: Mapping[tuple[str, str, str], Scored]) -> list[Agreement]:
    """Agreement of the score and of each of its parts with people, over all, by family, and in the random sample.

    A trajectory counts once, by the majority of its labels; ties and unscored ones are left out. Trajectories that were looked
    at because something was odd disagree more often than others: only the random sample estimates the rate over all.

    Args:
        labels: Those that count.
        scores: Place of a trajectory to its score.
    """
    trials = [trial for place, said in _by_place(labels).items() if (trial := _trial(said, scores.get(place)))]
    graders = [SCORE, *sorted({name for trial in trials for name in trial.said} - {SCORE})]
    groups = [("", trials), ("random sample", [trial for trial in trials if trial.is_random])]
    groups += [(f"family {name}", [t for t in trials if t.family == name]) for name in sorted({t.family for t in trials})]
    return [
        _agreement(grader, name, told)
        for name, of_group in groups
        for grader in graders
        if (told := [trial for trial in of_group if grader in trial.said])
    ]


def between_people(labels: Sequence[Label]) -> tuple[int, int]:
    """Trajectories that several people labelled, and on how many of these all agree."""
    several = [said for said in _by_place(labels).values() if len(said) > 1]
    return len(several), sum(len({label.label for label in said}) == 1 for said in several)


def _by_place(labels: Iterable[Label]) -> dict[tuple[str, str, str], list[Label]]:
    found: dict[tuple[str, str, str], list[Label]] = {}
    for label in labels:
        found.setdefault(label.place, []).append(label)
    return found


def _trial(said: Sequence[Label], scored: Scored | None) -> _Trial | None:
    if scored is None or scored.total is None:
        return None
    solved = scored.total >= 1
    votes = [(not solved) if label.label == GRADER else label.label == RIGHT for label in said]
    if 2 * sum(votes) == len(votes):
        return None
    parts = {name: value >= 1 for name, value in scored.breakdown.items() if _is_number(value)}
    is_random = any(label.why == RANDOM for label in said)
    return _Trial(scored.task, scored.family, is_random, 2 * sum(votes) > len(votes), {**parts, SCORE: solved})


def _agreement(grader: str, group: str, trials: Sequence[_Trial]) -> Agreement:
    by_task: dict[str, list[bool]] = {}
    for trial in trials:
        by_task.setdefault(trial.task, []).append(trial.said[grader] == trial.truth)
    means = sum(sum(same) / len(same) for same in by_task.values())
    low, high = wilson_interval(means, len(by_task))
    return Agreement(
        grader,
        group,
        len(trials),
        sum(trial.said[grader] == trial.truth for trial in trials),
        len(by_task),
        means / len(by_task),
        (low, high),
        sum(trial.said[grader] and not trial.truth for trial in trials),
        sum(trial.truth and not trial.said[grader] for trial in trials),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
