"""The batches of a work folder: what each start found new in the logs, how it was screened, and what was decided about it.

`work_dir/batches/ledger.json` is the list of all decisions, the oldest first; none is ever changed. A file for each batch,
`<id>.json`, holds its slices of the logs, its profile and the results of its checks. A batch is in the state of its last
decision: `accepted`, `held` or `released`. The slices of held batches are left out of every run. `snapshot.json` is what the
last start found in the logs, so that what is appended later is a slice of its own.
"""

from __future__ import annotations

import contextlib
import getpass
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.locks import hold
from tracewheel.core.store import write_whole
from tracewheel.core.types import content_hash
from tracewheel.operations.batch_profile import BatchProfile
from tracewheel.operations.screening import Suspicion, reasons
from tracewheel.traces.snapshot import Snapshot

FOLDER, LEDGER_FILE, SNAPSHOT_FILE = "batches", "ledger.json", "snapshot.json"
ACCEPTED, HELD, RELEASED = "accepted", "held", "released"
STATES = (ACCEPTED, HELD, RELEASED)
BY_SCREENING = "screening"
FIELDS = ("batch", "state", "when", "who", "why")


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

    def holds(self, file: str, line: int) -> bool:
        """Whether a record that begins at this place is in it."""
        return file == self.file and line >= self.line and (self.next_line is None or line < self.next_line)

    @property
    def shown(self) -> str:
        """The file and the lines."""
        return (
            self.file if self.line == 1 and self.next_line is None else f"{self.file}:{self.line}-{(self.next_line or 1) - 1}"
        )


@dataclass(frozen=True)
class Decision:
    """One line of the ledger."""

    batch: str
    state: str
    when: str
    who: str
    why: str
    run: str = ""


@dataclass(frozen=True)
class Batch:
    """A batch with its screening and its decisions, the oldest first."""

    id: str
    parts: tuple[LogPart, ...]
    profile: BatchProfile
    results: tuple[Suspicion, ...]
    decisions: tuple[Decision, ...] = field(default=())

    @property
    def state(self) -> str:
        return self.decisions[-1].state

    @property
    def when(self) -> str:
        """When it was screened."""
        return self.decisions[0].when

    @property
    def waits(self) -> bool:
        """Whether it is held, and no person has looked at it."""
        return self.state == HELD and self.decisions[-1].who == BY_SCREENING

    @property
    def reasons(self) -> list[Suspicion]:
        """What speaks against it."""
        return reasons(self.results)

    def to_record(self) -> dict[str, Any]:
        """The batch as `tracewheel batches` shows it."""
        return {
            "id": self.id,
            "state": self.state,
            "waits": self.waits,
            "when": self.when,
            "parts": [asdict(part) for part in self.parts],
            "records": {name: getattr(self.profile, name) for name in ("read", "kept", "duplicates", "quarantined")},
            "reasons": [result.sentence for result in self.reasons],
            "checks": [result.to_record() for result in self.results],
            "decisions": [asdict(decision) for decision in self.decisions],
        }


class Batches:
    """The batches of a work folder.

    Args:
        work_dir: The work folder.
    """

    def __init__(self, work_dir: str | Path) -> None:
        self.folder = Path(work_dir) / FOLDER

    def all(self) -> list[Batch]:
        """All batches in the order of their screening.

        Raises:
            DataError: the ledger or a batch's file is not what a run wrote.
        """
        by_batch: dict[str, list[Decision]] = {}
        for decision in self.ledger():
            by_batch.setdefault(decision.batch, []).append(decision)
        return [self._read(name, decisions) for name, decisions in by_batch.items()]

    def ledger(self) -> list[Decision]:
        """All decisions, the oldest first.

        Raises:
            DataError: the file is not what a run wrote.
        """
        path = self.folder / LEDGER_FILE
        rows = read_json(path) if path.is_file() else []
        if not isinstance(rows, list) or not all(map(_is_decision, rows)):
            raise DataError(
                f"{path}: not a list of decisions with {', '.join(FIELDS)}; put back a copy of it. Without it no batch is "
                "held: move the folder away only if every batch of the logs may be learnt from"
            )
        return [Decision(**row) for row in rows]

    def find(self, name: str) -> Batch:
        """The batch whose id begins with `name`.

        Raises:
            DataError: there is none, or more than one.
        """
        every = self.all()
        found = [batch for batch in every if name and batch.id.startswith(name)]
        if len(found) != 1:
            known = ", ".join(batch.id for batch in (found or every)[-5:]) or "none yet"
            raise DataError(f"{self.folder}: {len(found) or 'no'} batches begin with '{name}' (the last are: {known})")
        return found[0]

    def held(self) -> frozenset[str]:
        """SHA-256 of the slices that no run may read."""
        return frozenset(part.sha256 for batch in self.all() if batch.state == HELD for part in batch.parts)

    def known(self) -> frozenset[str]:
        """SHA-256 of all slices that were screened."""
        return frozenset(part.sha256 for batch in self.all() for part in batch.parts)

    def snapshot(self) -> Snapshot | None:
        """What the last start found in the logs, held slices included; None before the first.

        Raises:
            DataError: the file is not what a run wrote.
        """
        path = self.folder / SNAPSHOT_FILE
        if not path.is_file():
            return None
        record = read_json(path)
        try:
            return Snapshot.from_record(record)
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}: not the record of a snapshot ({error!r}); put back a copy, or delete it") from error

    def see(self, snapshot: Snapshot) -> None:
        """Note what a start found in the logs."""
        with self._locked():
            write_whole(self.folder / SNAPSHOT_FILE, json.dumps(snapshot.to_record(), indent=1) + "\n")

    def add(
        self, parts: Sequence[LogPart], profile: BatchProfile, results: Sequence[Suspicion], decision: Mapping[str, Any]
    ) -> Batch:
        """Note a screened batch with its first decision. The same slices are the same batch, which keeps its decisions.

        Args:
            parts: Its slices.
            profile: Its figures.
            results: Its checks.
            decision: `state`, `why`, `run` and `when`.
        """
        name = batch_id(parts)
        with self._locked():
            known = [batch for batch in self.all() if batch.id == name]
            if known:
                return known[0]
            record = {
                "id": name,
                "parts": [asdict(part) for part in parts],
                "profile": profile.to_record(),
                "checks": [result.to_record() for result in results],
            }
            write_whole(self._file(name), json.dumps(record, indent=1, ensure_ascii=False) + "\n")
            self._append(Decision(batch=name, who=BY_SCREENING, **decision))
        return self.find(name)

    def decide(self, name: str, state: str, why: str, when: datetime) -> Batch:
        """Release a batch, or hold it, by hand.

        Raises:
            DataError: there is no such batch, it is in this state already, or no reason is given.
        """
        if not why.strip():
            raise DataError("--why TEXT is needed: the ledger keeps who decided what, and why")
        with self._locked():
            batch = self.find(name)
            if batch.state == state or (state, batch.state) == (RELEASED, ACCEPTED):
                last = batch.decisions[-1]
                if state != HELD or last.who != BY_SCREENING:  # a person may confirm what the screening held
                    raise DataError(f"batch {batch.id} is {batch.state} already (since {last.when}, by {last.who})")
            self._append(Decision(batch.id, state, when.isoformat(timespec="seconds"), _user(), why))
        return self.find(batch.id)

    def totals(self) -> dict[str, int]:
        """What became of all records that were read: read = kept + duplicates + quarantined + held."""
        counts = dict.fromkeys(("read", "kept", "duplicates", "quarantined", "held"), 0)
        for batch in self.all():
            counts["read"] += batch.profile.read
            if batch.state == HELD:
                counts["held"] += batch.profile.read
                continue
            for name in ("kept", "duplicates", "quarantined"):
                counts[name] += getattr(batch.profile, name)
        return counts

    def _append(self, decision: Decision) -> None:
        rows = [asdict(row) for row in self.ledger()]
        write_whole(self.folder / LEDGER_FILE, json.dumps([*rows, asdict(decision)], indent=1, ensure_ascii=False) + "\n")

    def _read(self, name: str, decisions: Sequence[Decision]) -> Batch:
        path = self._file(name)
        record = read_json(path)
        try:
            return Batch(
                name,
                tuple(LogPart(**part) for part in record["parts"]),
                BatchProfile.from_record(record["profile"]),
                tuple(Suspicion(**result) for result in record["checks"]),
                tuple(decisions),
            )
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}: not the record of a batch ({error!r}); put back a copy of it") from error

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = self.folder / ".lock"
        lock.touch()
        with hold(lock, wait=True):
            yield


def batch_id(parts: Collection[LogPart]) -> str:
    """The name of a batch: equal for equal slices."""
    return content_hash(sorted(part.sha256 for part in parts), length=12)


def _is_decision(row: Any) -> bool:
    texts = isinstance(row, dict) and all(isinstance(row.get(name), str) for name in FIELDS)
    return bool(texts) and row["state"] in STATES and set(row) <= {*FIELDS, "run"}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return "unknown"
