"""A promotion that waits for a person: `approval.json` in the record of the run.

With `gate.approval: required`, a run that the gate would promote ends with this file. The decision is written into it once,
and what came of it when it was carried out: another decision is refused, the same one again finishes what a kill left undone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tracewheel.core import clock
from tracewheel.core.errors import DataError, InputError
from tracewheel.core.files import read_json
from tracewheel.core.locks import hold_beside
from tracewheel.core.run_state import PROMOTED, REFUSED
from tracewheel.core.store import write_whole
from tracewheel.operations.plain_words import plain_words

APPROVAL_FILE = "approval.json"
APPROVED = "approved"
DECISIONS = (APPROVED, REFUSED)
# What came of a decision: the alias moved; it did not; or another champion came first.
OVERTAKEN = "overtaken"
OUTCOMES = (PROMOTED, REFUSED, OVERTAKEN)


@dataclass(frozen=True)
class Approval:
    """How it stands with the promotion of a run.

    Attributes:
        asked: When the run began to wait.
        decision: `approved` or `refused`; "" before.
        by, note, at: Who decided, what they say of it, and when.
        outcome: What came of it (`OUTCOMES`); "" while it is not carried out.
        why: Of an approval that promoted nothing, the reason.
    """

    asked: str
    decision: str = ""
    by: str = ""
    note: str = ""
    at: str = ""
    outcome: str = ""
    why: str = ""

    @property
    def waits(self) -> bool:
        """Whether nobody has decided yet."""
        return not self.decision

    @property
    def says(self) -> str:
        """How it stands, in a sentence."""
        if self.waits:
            return f"waits for approval since {self.asked}"
        said = f"{self.decision} by {self.by}" + (f": {self.note}" if self.note else "")
        if not self.outcome:
            return f"{said}; not carried out yet"
        return f"{said}; {self.why}" if self.outcome == OVERTAKEN else said

    def to_record(self) -> dict[str, Any]:
        """JSON types."""
        return asdict(self)


def approval_of(record: Path) -> Approval | None:
    """How it stands with the promotion of a run; None of a run that never waited.

    Raises:
        DataError: the file is not what a run wrote.
    """
    path = record / APPROVAL_FILE
    if not path.is_file():
        return None
    found = read_json(path)
    names = set(Approval.__dataclass_fields__)
    if not (isinstance(found, dict) and "asked" in found and found.keys() <= names and _texts(found)):
        raise DataError(f"{path}: not an approval with {', '.join(sorted(names))}; put back a copy of it")
    return Approval(**found)


def ask(record: Path) -> Approval:
    """Let a run wait for a person, unless it has waited before."""
    with hold_beside(record / APPROVAL_FILE):
        return approval_of(record) or _write(record, Approval(asked=clock.written()))


def decide(record: Path, decision: str, by: str, note: str = "") -> Approval:
    """Write a decision down, before it is carried out.

    Args:
        record: The folder of the run's record.
        decision: One of `DECISIONS`.
        by: Who decides.
        note: What they say of it.

    Raises:
        InputError: the run does not wait, the decision is given already, or a text is unusable.
    """
    if decision not in DECISIONS:
        raise InputError(f"decision {decision!r}: give {' or '.join(DECISIONS)}")
    by, note = plain_words(by, "who decides", 80), plain_words(note, "the note", 500, empty=True)
    with hold_beside(record / APPROVAL_FILE):
        known = approval_of(record)
        if known is None:
            raise InputError(f"run {record.name} does not wait for approval: only a run with gate.approval=required does")
        if known.waits:
            return _write(record, replace(known, decision=decision, by=by, note=note, at=clock.written()))
        if known.outcome or (known.decision, known.by) != (decision, by):
            raise InputError(f"run {record.name} is decided already: {known.says}")
        return known


def carried_out(record: Path, outcome: str, why: str = "") -> Approval:
    """Note what came of a decision."""
    with hold_beside(record / APPROVAL_FILE):
        known = approval_of(record)
        if known is None or known.waits:
            raise InputError(f"run {record.name}: nothing is decided")
        return _write(record, replace(known, outcome=outcome, why=why))


def _write(record: Path, approval: Approval) -> Approval:
    write_whole(record / APPROVAL_FILE, json.dumps(approval.to_record(), indent=2) + "\n")
    return approval


def _texts(found: dict[str, Any]) -> bool:
    return all(isinstance(value, str) for value in found.values())
