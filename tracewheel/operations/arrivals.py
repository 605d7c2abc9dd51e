"""Counts the records that arrive in logs, by what their files have grown.

A look costs one `stat` for each file; only what is new is read. A record counts once it is whole: a line when it can be
parsed, a file that is read as a whole (documents, archives, a session) when it no longer changes.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tracewheel.config import IngestConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json
from tracewheel.core.store import write_whole
from tracewheel.traces.compression import is_compressed
from tracewheel.traces.discovery import find_files
from tracewheel.traces.log_file import LogFile
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.log_reader import LogReader
from tracewheel.traces.readers.plugins import own_readers
from tracewheel.traces.readers.reading import whole_file_pieces
from tracewheel.traces.spool import Spool

QUIET_SECONDS = 10.0
MOST_COUNTS = 500


@dataclass(frozen=True)
class Read:
    """How far a file was counted: the state it had, where the next read begins, and its records so far."""

    size: int = 0
    mtime_ns: int = 0
    offset: int = 0
    line: int = 1
    records: int = 0
    is_whole: bool = False


@dataclass
class Arrivals:
    """The records that have arrived since a time.

    Attributes:
        counts: When how many records were found, in order.
    """

    config: IngestConfig
    paths: tuple[str, ...]
    state_path: Path
    quiet_seconds: float = QUIET_SECONDS
    counts: list[tuple[str, int]] = field(default_factory=list)
    _read: dict[str, Read] = field(default_factory=dict)
    _changing: dict[str, tuple[tuple[int, int], float]] = field(default_factory=dict)

    @classmethod
    def open(cls, config: IngestConfig, paths: tuple[str, ...], state_path: Path) -> Arrivals:
        """What was counted before in files, folders or globs; without a state, all their records are new."""
        arrivals = cls(config, paths, state_path)
        try:
            state: dict[str, Any] = read_json(state_path)
        except DataError:
            return arrivals  # counting again costs a look at all files
        arrivals.counts = [(when, count) for when, count in state["counts"]]
        arrivals._read = {name: Read(**read) for name, read in state["files"].items()}
        return arrivals

    def look(self) -> int:
        """Count what is new, and keep the state; returns all records that count."""
        found = 0
        for name, path in self._files().items():
            try:
                found += self._count(name, path)
            except OSError:
                continue  # gone or not readable at the moment: the next look sees it again
        if found:
            self.counts.append((datetime.now(UTC).isoformat(), found))
            self._save()
        return self.total

    @property
    def total(self) -> int:
        """The records that have arrived."""
        return sum(count for _, count in self.counts)

    def forget_until(self, when: datetime) -> None:
        """Drop what was counted up to a time: a run that started then has taken it in."""
        kept = [(counted, count) for counted, count in self.counts if datetime.fromisoformat(counted) > when]
        if len(kept) < len(self.counts):
            self.counts = kept
            self._save()

    def _files(self) -> dict[str, Path]:
        try:
            return {str(path): path for path in find_files(self.paths).values()}
        except DataError:
            return {}  # none yet

    def _count(self, name: str, path: Path) -> int:
        facts = path.stat()
        before, state = self._read.get(name, Read()), (facts.st_size, facts.st_mtime_ns)
        if state == (before.size, before.mtime_ns):
            return 0
        if before.offset > facts.st_size:
            before = Read()  # cut off, as a rotated log is
        if (before.is_whole or (not before.offset and _is_read_whole(path))) and not self._is_quiet(name, state):
            return 0
        after = replace(self._records(path, before), size=facts.st_size, mtime_ns=facts.st_mtime_ns)
        self._read[name] = after
        return max(0, after.records - before.records)

    def _is_quiet(self, name: str, state: tuple[int, int]) -> bool:
        seen, since = self._changing.get(name, (None, 0.0))
        if seen != state:
            self._changing[name] = (state, time.monotonic())
            return False
        return time.monotonic() - since >= self.quiet_seconds

    def _records(self, path: Path, before: Read) -> Read:
        """Count the records behind what was read; a session that has grown is one more."""
        if before.is_whole:
            before = replace(before, offset=0, line=1)
        with Spool() as spool:
            reader = LogReader(self.config.format, spool, own_readers(self.config.readers), self.config.fields)
            largest, expansion = self.config.largest_record_mib << 20, self.config.largest_expansion
            pieces, log = whole_file_pieces(path, largest, expansion), None
            if pieces is None:
                log = LogFile(path, (before.offset, before.line), largest, expansion=expansion)
                pieces = log.pieces()
            items, cut = 0, False
            for item in reader.read(pieces, path.name):
                cut = isinstance(item, Quarantined) and item.reason == "truncated"
                items += not cut
            items += sum(1 for _ in reader.spooled())
            in_session = reader.sessions.in_file
        if log is None or log.layout == "documents" or is_compressed(path):
            return Read(records=items, is_whole=True)
        if in_session:
            return Read(records=before.records + 1, is_whole=True)
        if not cut:
            log.take_last_line()
        return Read(offset=log.offset, line=log.line, records=before.records + items)

    def _save(self) -> None:
        if len(self.counts) > MOST_COUNTS:
            older, self.counts = self.counts[:-MOST_COUNTS], self.counts[-MOST_COUNTS:]
            self.counts.insert(0, (older[-1][0], sum(count for _, count in older)))
        files = {name: asdict(read) for name, read in self._read.items()}
        write_whole(self.state_path, json.dumps({"counts": self.counts, "files": files}) + "\n")


def _is_read_whole(path: Path) -> bool:
    if is_compressed(path) or whole_file_pieces(path) is not None:
        return True
    return LogFile(path).layout == "documents"
