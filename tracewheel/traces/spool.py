"""Spans and requests on disk, grouped by trace once all files are read, as its parts may be in several files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple

from tracewheel.traces.places import Origin, Stretch, origin_of
from tracewheel.traces.readers.building import Place
from tracewheel.traces.readers.logged_request import LoggedRequest
from tracewheel.traces.request_chains import RequestTable

MEMORY_KIB = 64 << 10
ROWS_PER_WRITE = 1000


class SpanGroup(NamedTuple):
    """The spans of one trace, as bytes. Place and offset are those of the first; `origin` is where all of them lie."""

    trace_id: str
    raws: list[bytes]
    place: Place
    offset: int
    origin: Origin = ()


class Spool:
    """Spans by trace id, in bounded memory.

    SQLite's temporary database is an unnamed file that vanishes with the process, even when that is killed: text that is
    not redacted yet never has a name on the disk.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("")
        self._database.execute(f"PRAGMA cache_size = -{MEMORY_KIB}")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute(
            "CREATE TABLE spans (trace_id TEXT, raw BLOB, file TEXT, line INTEGER, start INTEGER, size INTEGER)"
        )
        self.requests = RequestTable(self._database)
        self._rows: list[tuple[str, bytes, str, int, int, int]] = []
        self.is_empty = True

    def add(self, trace_id: str, raw: bytes, stretch: Stretch) -> None:
        """Add a span, which lies in a stretch of a log."""
        self.is_empty = False
        self._rows.append((trace_id, raw, *stretch))
        if len(self._rows) >= ROWS_PER_WRITE:
            self._write()

    def add_request(self, request: LoggedRequest, raw: bytes, stretch: Stretch) -> None:
        """Add a logged request, which lies in a stretch of a log."""
        self.is_empty = False
        self.requests.add(request, raw, stretch)

    def groups(self) -> Iterator[SpanGroup]:
        """The traces in the order of their first spans; each trace's spans in the order they were read."""
        self._write()
        self._database.execute("CREATE INDEX IF NOT EXISTS by_trace ON spans (trace_id)")
        ids = self._database.execute("SELECT trace_id, MIN(rowid) AS first FROM spans GROUP BY trace_id ORDER BY first")
        for trace_id, _ in ids:
            rows = self._database.execute(
                "SELECT raw, file, line, start, size FROM spans WHERE trace_id = ? ORDER BY rowid", (trace_id,)
            ).fetchall()
            _, file, line, offset, _ = rows[0]
            origin = origin_of(Stretch(*row[1:]) for row in rows)
            yield SpanGroup(trace_id, [row[0] for row in rows], Place(file, line), offset, origin)

    def _write(self) -> None:
        self._database.executemany("INSERT INTO spans VALUES (?, ?, ?, ?, ?, ?)", self._rows)
        self._rows = []

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._database.close()
