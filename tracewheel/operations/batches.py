"""The batches of a work folder: what starts found new in the logs, and what was decided about it.

A screen of a wheel writes them (`flows/screening.py`). `work_dir/batches/ledger.json` is the list of all decisions, the oldest
first; none is ever changed. A file for each batch, `<id>.json`, holds its slices of the logs (`parts`), its figures (`profile`)
and what its `checks` found. A batch is in the state of its last decision: `accepted`, `held` or `released`. The slices of held
batches are left out of every run, with the wheel or without it. `snapshot.json` is what the last start found in the logs, so
that what is appended later is a slice of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json

FOLDER, LEDGER_FILE, SNAPSHOT_FILE = "batches", "ledger.json", "snapshot.json"
HELD = "held"
STATES = ("accepted", HELD, "released")
BY_SCREENING = "screening"
FIELDS = ("batch", "state", "when", "who", "why")
COUNTS = ("read", "kept", "duplicates", "quarantined")


@dataclass(frozen=True)
class LogPart:
    """A slice of a log file, as batches know it.

    Attributes:
        file: The file's stored name.
        line: Its first line.
        next_line: The line after it; None for the rest of the file.
        sha256: Of its bytes.
    """

    file: str
    line: int
    next_line: int | None
    sha256: str

    @property
    def shown(self) -> str:
        """The file and the lines."""
        return (
            self.file if self.line == 1 and self.next_line is None else f"{self.file}:{self.line}-{(self.next_line or 1) - 1}"
        )


@dataclass(frozen=True)
class Batch:
    """A batch with its figures and its decisions, the oldest first.

    Attributes:
        id: Its name.
        parts: Its slices of the logs.
        profile: Its figures; the core reads `COUNTS`, its records by what became of them.
        checks: What was found: each has `check`, `severity` (`held`: reason to hold it) and `sentence`.
        decisions: Lines of the ledger (`FIELDS`).
    """

    id: str
    parts: tuple[LogPart, ...]
    profile: Mapping[str, Any]
    checks: Sequence[Mapping[str, Any]]
    decisions: Sequence[Mapping[str, str]]

    @property
    def state(self) -> str:
        return self.decisions[-1]["state"]

    @property
    def when(self) -> str:
        """When it was screened."""
        return self.decisions[0]["when"]

    @property
    def waits(self) -> bool:
        """Whether it is held, and no person has looked at it."""
        return self.state == HELD and self.decisions[-1]["who"] == BY_SCREENING

    @property
    def records(self) -> dict[str, int]:
        """Its records, by what became of them."""
        return {name: self.profile[name] for name in COUNTS}

    @property
    def reasons(self) -> list[Mapping[str, Any]]:
        """What speaks against it."""
        return [check for check in self.checks if check["severity"] == HELD]

    @property
    def why(self) -> str:
        """What speaks against it in words, else the reason of its last decision."""
        return "; ".join(check["sentence"] for check in self.reasons) or self.decisions[-1]["why"]

    def shown(self, most: int = 2) -> str:
        """Where in the logs it is."""
        more = f" and {len(self.parts) - most} more" if self.parts[most:] else ""
        return ", ".join(part.shown for part in self.parts[:most]) + more

    def to_record(self) -> dict[str, Any]:
        """The batch as `tracewheel batches` and `tracewheel runs status` show it."""
        return {
            "id": self.id,
            "state": self.state,
            "waits": self.waits,
            "when": self.when,
            "parts": [asdict(part) for part in self.parts],
            "of": self.shown(),
            "records": self.records,
            "reasons": [check["sentence"] for check in self.reasons],
            "why": self.why,
            "checks": list(self.checks),
            "decisions": list(self.decisions),
        }


def screened_batches(work_dir: str | Path) -> list[Batch]:
    """All batches in the order of their screening.

    Raises:
        DataError: the ledger or a batch's file is not what a run wrote.
    """
    folder = Path(work_dir) / FOLDER
    path = folder / LEDGER_FILE
    rows = read_json(path) if path.is_file() else []
    if not isinstance(rows, list) or not all(map(_is_decision, rows)):
        raise DataError(
            f"{path}: not a list of decisions with {', '.join(FIELDS)}; put back a copy of it. Without it no batch is "
            "held: move the folder away only if every batch of the logs may be learnt from"
        )
    by_batch: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        by_batch.setdefault(row["batch"], []).append(row)
    return [_read(folder / f"{name}.json", decisions) for name, decisions in by_batch.items()]


def held_batches(work_dir: str | Path) -> list[Batch]:
    """The batches that no run may read."""
    return [batch for batch in screened_batches(work_dir) if batch.state == HELD]


def held_slices(work_dir: str | Path) -> frozenset[str]:
    """SHA-256 of the slices that no run may read."""
    return frozenset(part.sha256 for batch in held_batches(work_dir) for part in batch.parts)


def _read(path: Path, decisions: Sequence[Mapping[str, str]]) -> Batch:
    record = read_json(path)
    try:
        parts = tuple(LogPart(**part) for part in record["parts"])
        batch = Batch(path.stem, parts, record["profile"], record["checks"], decisions)
        batch.to_record()  # what is read of it later is there
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: not the record of a batch ({error!r}); put back a copy of it") from error
    return batch


def _is_decision(row: Any) -> bool:
    texts = isinstance(row, dict) and all(isinstance(row.get(name), str) for name in FIELDS)
    return bool(texts) and row["state"] in STATES and set(row) <= {*FIELDS, "run"}
