"""The output folder of incremental ingests: each commit replaces it as a whole or not at all.

The next version is built beside the folder, with links to the parts that stay, and renamed into its place. A kill leaves
the old version or the new one. Between the two renames the old one has another name; the next ingest renames it back.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.locks import hold
from tracewheel.core.out_folder import carry_hidden, check_out_folder
from tracewheel.core.store import PARTIAL, PREVIOUS, disk_errors, flush, link_file, remove
from tracewheel.traces.compression import is_compressed
from tracewheel.traces.counts import Counts
from tracewheel.traces.ingested_folder import INGESTED, PLACES_FOLDER, QUARANTINE_FILE, REPORT_FILE, STATE_FILE, TRACES_FOLDER
from tracewheel.traces.intake import StoredHashes

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


STATE_VERSION = 2


@dataclass
class ArchiveState:
    """What an archive stores to add to itself: settings, files read, totals and hashes."""

    settings: str
    ledger: Ledger = field(default_factory=Ledger)
    totals: Counts = field(default_factory=Counts)
    known: StoredHashes = field(default_factory=StoredHashes)
    parts: int = 0


class Archive:
    """A folder of ingested traces.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path = path.resolve()
        self._previous = path.with_name(f"{PREVIOUS}{path.name}")
        self._next = path.with_name(f"{PARTIAL}{path.name}-{os.getpid()}")

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the folder for this process, and clean up after a killed one.

        Raises:
            DataError: it holds what no ingest has written.
            InfrastructureError: another process is writing to it.
        """
        lock = self.path.with_name(f".lock-{self.path.name}")
        with disk_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock.touch()
        with hold(lock) as held:
            if not held:
                raise InfrastructureError(f"{self.path}: another ingest is writing to it; wait for it")
            if self._previous.exists() and not self.path.exists():
                os.replace(self._previous, self.path)
            self._drop_previous()
            for leftover in self.path.parent.glob(f"{PARTIAL}{glob.escape(self.path.name)}-[0-9]*"):
                remove(leftover)
            check_out_folder(self.path, INGESTED, by="ingest")
            try:
                yield
            finally:
                remove(self._next)
                lock.unlink(missing_ok=True)

    def load(self, settings: str) -> ArchiveState:
        """The folder's state; an empty one when the folder does not exist.

        Args:
            settings: Digest of the settings that stored traces depend on.

        Raises:
            DataError: the folder is a profile's, or was made with other settings.
        """
        if not self.path.exists() or not (self.path / REPORT_FILE).exists():
            return ArchiveState(settings)
        file = self.path / STATE_FILE
        if not file.exists():
            raise DataError(f"{self.path}: exists and has no {STATE_FILE}; choose another --out, or replace it with --full")
        try:
            stored = json.loads(file.read_text())
            state = ArchiveState(
                stored["settings"],
                Ledger.from_record(stored["files"]),
                Counts.of_report(stored["totals"]),
                StoredHashes.load(self.path),
                stored["parts"],
            )
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise DataError(f"{file}: cannot be read: {error}; {FULL}") from error
        if stored["version"] != STATE_VERSION:
            raise DataError(f"{self.path}: was ingested by an earlier version of Tracewheel; {FULL}, or choose another --out")
        if state.settings != settings:
            raise DataError(
                f"{self.path}: was ingested with other settings of ingest.redaction, ingest.readers or ingest.fields,"
                f" other code of a reader, another key, or before somebody was forgotten; {FULL},"
                " or choose another --out"
            )
        return state

    def begin(self, state: ArchiveState, *, keep: bool) -> tuple[Path, Path]:
        """Begin the folder's next version.

        Args:
            state: The current state.
            keep: Whether to keep the folder's contents.

        Returns:
            The Parquet file and the quarantine file to write.
        """
        remove(self._next)
        parts = self._next / TRACES_FOLDER
        parts.mkdir(parents=True)
        quarantine = self._next / QUARANTINE_FILE
        if keep and (self.path / STATE_FILE).exists():
            for part in sorted((self.path / TRACES_FOLDER).glob("part-*.parquet")):
                link_file(part, parts / part.name)
            places = sorted((self.path / PLACES_FOLDER).glob("part-*.parquet"))
            for part in places:
                (self._next / PLACES_FOLDER).mkdir(exist_ok=True)
                link_file(part, self._next / PLACES_FOLDER / part.name)
            shutil.copy2(self.path / QUARANTINE_FILE, quarantine)
        return parts / part_name(state.parts), quarantine

    def commit(self, state: ArchiveState, report: dict[str, Any]) -> None:
        """Replace the folder with the version that `begin` began."""
        write_report(self._next, report)
        state.known.save(self._next)
        stored = {
            "version": STATE_VERSION,
            "settings": state.settings,
            "parts": state.parts,
            "totals": state.totals.report(),
            "files": state.ledger.to_record(),
        }
        (self._next / STATE_FILE).write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
        flush(self._next)
        if self.path.exists():
            os.replace(self.path, self._previous)
        os.replace(self._next, self.path)
        self._drop_previous()

    def _drop_previous(self) -> None:
        """Delete the folder's earlier version; hidden files in it go to the present one."""
        if self._previous.is_dir():
            carry_hidden(self._previous, self.path)
        remove(self._previous)


def part_name(number: int) -> str:
    """The file name of a part in `traces.parquet`."""
    return f"part-{number:05d}.parquet"


def write_report(folder: Path, report: dict[str, Any]) -> None:
    """Write the report into `folder`."""
    (folder / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
