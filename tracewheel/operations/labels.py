"""What people say of trajectories: `labels.jsonl` in the record of a run, a line for each label, the newest last.

The file only grows. A second label of the same person on the same trajectory replaces the first, and `withdrawn` takes it back.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tracewheel.core import clock
from tracewheel.core.errors import DataError, InputError
from tracewheel.core.locks import hold_beside
from tracewheel.core.store import disk_errors
from tracewheel.operations.plain_words import plain_words

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
    """Add a label; returns it as it was written, with its time.

    Args:
        record: The folder of the run's record.
        label: What is said. That the trajectory exists is the caller's to check.

    Raises:
        InputError: no such label, or a text is unusable.
        DataError: the file is damaged.
    """
    if label.label not in (*LABELS, WITHDRAWN):
        raise InputError(f"label {label.label!r}: give {', '.join(LABELS)} or {WITHDRAWN}")
    who = plain_words(label.who, "who labels", LONGEST_NAME)
    note = plain_words(label.note, "the note", LONGEST_NOTE, empty=True)
    written = Label(**{**asdict(label), "who": who, "note": note, "at": clock.written()})
    path = record / LABELS_FILE
    with hold_beside(path), disk_errors(path):
        _read(path)  # nothing is added to a file that cannot be read back
        whole = not path.is_file() or path.stat().st_size == 0 or path.read_bytes().endswith(b"\n")
        with path.open("ab") as stream:
            # A line that a kill cut is ended first: it is skipped when the file is read.
            stream.write((b"" if whole else b"\n") + json.dumps(asdict(written)).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
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
