"""Which files an ingest has read, how far, and hashes that show whether the part read has changed."""

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
class Progress:
    """How far a file was read.

    The next read starts at `offset` and `line`. `grows`: lines may be appended, as the file holds uncompressed lines.
    `head` and `tail` are hashes of the first bytes and of the last bytes before `offset`. `is_session`: the lines are one
    record, so that a file that has grown is read again from its beginning.
    """

    size: int
    mtime_ns: int
    offset: int
    line: int
    grows: bool
    head: str
    tail: str
    is_session: bool = False

    @classmethod
    def of(cls, path: Path, offset: int | None = None, line: int = 1, *, unfinished: bool = False) -> Progress:
        """The progress in a file that was just read.

        Args:
            path: The file.
            offset: In a file of lines, the byte after the last one read; None for a file that was read as a whole.
            line: The number of the line at `offset`.
            unfinished: Whether the rest of the file is still to be read, even if the file does not change.
        """
        facts = path.stat()
        end = facts.st_size if offset is None else offset
        head, tail = _hashes(path, end)
        if unfinished:
            return cls(end, 0, end, line, True, head, tail)
        return cls(facts.st_size, facts.st_mtime_ns, end, line, offset is not None, head, tail)


@dataclass
class Ledger:
    """The progress in each file, by its path.

    `named` maps a path to the name that is stored, and `hidden` to its name where the path holds a secret: that may have
    been known only at the end of the earlier ingest.
    """

    progress: dict[str, Progress] = field(default_factory=dict)
    named: Callable[[str], str] = str
    hidden: Callable[[str], str] = str

    def where_to_begin(self, path: Path) -> tuple[int, int] | None:
        """The byte and line to start reading from; None when there is nothing new.

        Raises:
            DataError: the part that was read has changed.
        """
        earlier = self.progress.get(self.named(str(path))) or self.progress.get(self.hidden(str(path)))
        if earlier is None:
            return (0, 1)
        facts = path.stat()
        if (facts.st_size, facts.st_mtime_ns) == (earlier.size, earlier.mtime_ns):
            return None
        if facts.st_size < earlier.offset or _hashes(path, earlier.offset) != (earlier.head, earlier.tail):
            raise DataError(f"{path}: has changed since it was ingested, not only grown; {FULL}")
        if earlier.grows and earlier.is_session:
            return (0, 1) if facts.st_size > earlier.offset else None
        if earlier.grows:
            return (earlier.offset, earlier.line) if facts.st_size > earlier.offset else None
        if facts.st_size > earlier.size:
            kind = "a compressed file" if is_compressed(path) else "a file that is not one record a line"
            raise DataError(f"{path}: has grown since it was ingested, and {kind} is read as a whole; {FULL}")
        return None

    def read_before(self, path: Path) -> int:
        """The bytes of a session's file that an earlier ingest has read; 0 of any other file."""
        earlier = self.progress.get(self.named(str(path)))
        return earlier.offset if earlier and earlier.is_session else 0

    def note(self, path: Path, progress: Progress) -> None:
        """Record the progress in a file."""
        self.progress[self.named(str(path))] = progress

    def rename(self) -> None:
        """Name the files again: a path may hold a secret that a record revealed."""
        self.progress = {self.named(path): progress for path, progress in self.progress.items()}

    def to_record(self) -> dict[str, Any]:
        """JSON types."""
        return {path: asdict(progress) for path, progress in self.progress.items()}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Ledger:
        """The inverse of `to_record`."""
        return cls({path: Progress(**progress) for path, progress in record.items()})


def _hashes(path: Path, end: int) -> tuple[str, str]:
    """Hashes of the first bytes of a file, and of the last bytes before `end`."""
    with path.open("rb") as file:
        head = file.read(min(PROBE, end))
        file.seek(max(0, end - PROBE))
        tail = file.read(min(PROBE, end))
    return hashlib.sha256(head).hexdigest(), hashlib.sha256(tail).hexdigest()
