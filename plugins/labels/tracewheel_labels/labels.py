"""What people say of trajectories: `labels.jsonl` in the record of a run, a line for each label, the newest last.

The file only grows. A second label of the same person on the same trajectory replaces the first, and `withdrawn` takes it back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tracewheel import DataError, InputError, hold_beside, plain_words, rate_interval, write_whole

LABELS_FILE = "labels.jsonl"
RIGHT, WRONG, GRADER, WITHDRAWN = "right", "wrong", "grader at fault", "withdrawn"
LABELS = (RIGHT, WRONG, GRADER)
LONGEST_NOTE, LONGEST_NAME = 1000, 80


@dataclass(frozen=True)
class Label:
    """What a person says of a trajectory.

    Attributes:
        entry, part, trajectory: Where the trajectory is: the stored result, `greedy`, `sampled` or "", and its id.
        label: `right` or `wrong`: whether the agent did what was asked, whatever the score says; `grader at fault`: the score
            says the opposite of what is so. `withdrawn` takes the person's label back.
        who: The person.
        note: Their words.
        why: Why the trajectory was looked at: the part of the queue, or "".
        at: When.
    """

    entry: str
    part: str
    trajectory: str
    label: str
    who: str
    note: str = ""
    why: str = ""
    at: str = ""

    @property
    def place(self) -> tuple[str, str, str]:
        """The trajectory that it is about."""
        return self.entry, self.part, self.trajectory


FIELDS = tuple(Label.__dataclass_fields__)


def add_label(record: Path, label: Label) -> Label:
    """Add a label; returns it as it was written.

    Args:
        record: The folder of the run's record.
        label: What is said, and when. That the trajectory exists is the caller's to check.

    Raises:
        InputError: no such label, or a text is unusable.
        DataError: the file is damaged.
    """
    if label.label not in (*LABELS, WITHDRAWN):
        raise InputError(f"label {label.label!r}: give {', '.join(LABELS)} or {WITHDRAWN}")
    who = plain_words(label.who, "who labels", LONGEST_NAME)
    note = plain_words(label.note, "the note", LONGEST_NOTE, empty=True)
    written = Label(**{**asdict(label), "who": who, "note": note})
    path = record / LABELS_FILE
    with hold_beside(path):
        _read(path)  # nothing is added to a file that cannot be read back
        before = path.read_bytes() if path.is_file() else b""
        end = b"" if before.endswith(b"\n") or not before else b"\n"  # of a line that a kill cut
        write_whole(path, before + end + json.dumps(asdict(written)).encode() + b"\n")
    return written


def labels_of(record: Path) -> list[Label]:
    """The labels that count, in the order of their last change.

    Raises:
        DataError: a line is not what the dashboard wrote.
    """
    last: dict[tuple[str, ...], Label] = {}
    for label in _read(record / LABELS_FILE):
        key = (*label.place, label.who)
        last.pop(key, None)
        last[key] = label
    return [label for label in last.values() if label.label != WITHDRAWN]


def counts(labels: list[Label]) -> dict[str, int]:
    """Label to how many people's labels there are."""
    return {name: sum(label.label == name for label in labels) for name in LABELS}


def _read(path: Path) -> list[Label]:
    if not path.is_file():
        return []
    found = []
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(_label(json.loads(line)))
        except ValueError as flaw:
            if not line.endswith(b"}"):
                continue  # cut by a kill while it was written: nobody was told that it is kept
            raise DataError(f"{path}:{number}: no label ({flaw}); delete the line, or put back a copy of the file") from flaw
    return found


def _label(values: Any) -> Label:
    if not isinstance(values, Mapping) or set(values) != set(FIELDS) or not all(isinstance(v, str) for v in values.values()):
        raise ValueError(f"not texts under {', '.join(FIELDS)}")
    return Label(**values)


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
        interval: 95%, with a task's rate as one value.
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
    means = [sum(same) / len(same) for same in by_task.values()]
    low, high = rate_interval(means)
    return Agreement(
        grader,
        group,
        len(trials),
        sum(trial.said[grader] == trial.truth for trial in trials),
        len(by_task),
        sum(means) / len(means),
        (low, high),
        sum(trial.said[grader] and not trial.truth for trial in trials),
        sum(trial.truth and not trial.said[grader] for trial in trials),
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
