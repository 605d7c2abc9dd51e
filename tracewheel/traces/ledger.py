"""Which files an ingest has read, how far, and how to tell that what was read is still the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.traces.compression import is_compressed

PROBE = 4096
FULL = "ingest everything again with --full"


@dataclass(frozen=True)
class Reading:
    """How far a file was read.

    `offset` and `line` are where a later reading goes on; `grows` says that one can: the file is lines, without
    compression. `head` and `tail` are hashes of its first bytes and of those before `offset`.
    """

    size: int
    mtime_ns: int
    offset: int
    line: int
    grows: bool
    head: str
    tail: str

    @classmethod
    def of(cls, path: Path, offset: int | None = None, line: int = 1, *, unfinished: bool = False) -> Reading:
        """What was read of a file: up to a byte of its lines, or all of it.

        Args:
            path: The file.
            offset: Up to where, of lines; None for all of it.
            line: The number of the line there.
            unfinished: Whether more of the file waits to be read, even if it does not change.
        """
        facts = path.stat()
        end = facts.st_size if offset is None else offset
        head, tail = _hashes(path, end)
        if unfinished:
            return cls(end, 0, end, line, True, head, tail)
        return cls(facts.st_size, facts.st_mtime_ns, end, line, offset is not None, head, tail)


@dataclass
class Ledger:
    """What was read of each file, by its place on the disk, as `named` writes that down."""

    readings: dict[str, Reading] = field(default_factory=dict)
    named: Callable[[str], str] = str

    def where_to_begin(self, path: Path) -> tuple[int, int] | None:
        """The byte and line to read on from; None when there is nothing new.

        Raises:
            DataError: what was read has changed.
        """
        earlier = self.readings.get(self.named(str(path)))
        if earlier is None:
            return (0, 1)
        facts = path.stat()
        if (facts.st_size, facts.st_mtime_ns) == (earlier.size, earlier.mtime_ns):
            return None
        if facts.st_size < earlier.offset or _hashes(path, earlier.offset) != (earlier.head, earlier.tail):
            raise DataError(f"{path}: has changed since it was ingested, not only grown; {FULL}")
        if earlier.grows:
            return (earlier.offset, earlier.line) if facts.st_size > earlier.offset else None
        if facts.st_size > earlier.size:
            kind = "a compressed file" if is_compressed(path) else "a file that is not one record a line"
            raise DataError(f"{path}: has grown since it was ingested, and {kind} is read as a whole; {FULL}")
        return None

    def note(self, path: Path, reading: Reading) -> None:
        """Remember how far a file was read."""
        self.readings[self.named(str(path))] = reading

    def to_record(self) -> dict[str, Any]:
        """JSON types."""
        return {path: asdict(reading) for path, reading in self.readings.items()}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Ledger:
        """The ledger of `to_record`."""
        return cls({path: Reading(**reading) for path, reading in record.items()})


def _hashes(path: Path, end: int) -> tuple[str, str]:
    """Hashes of the first bytes of a file, and of those before `end`."""
    with path.open("rb") as file:
        head = file.read(min(PROBE, end))
        file.seek(max(0, end - PROBE))
        tail = file.read(min(PROBE, end))
    return hashlib.sha256(head).hexdigest(), hashlib.sha256(tail).hexdigest()
