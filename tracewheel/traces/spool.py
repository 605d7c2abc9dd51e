"""Parts of groups on disk until all files are read, as those of one trace may be in several files."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple

import orjson

from tracewheel.traces.places import Origin, Stretch, origin_of
from tracewheel.traces.readers.reader import Place

MEMORY_KIB = 64 << 10
ROWS_PER_WRITE = 1000
Chains = Callable[[Iterable[tuple[int, Any]]], Iterator[list[int]]]


class Group(NamedTuple):
    """The parts of one group, as bytes. Place and offset are those of the first; `origin` is where all of them lie."""

    reader: str
    id: str
    raws: list[bytes]
    place: Place
    offset: int
    origin: Origin = ()


class Spool:
    """Parts by their reader and group, in bounded memory.

    SQLite's temporary database is an unnamed file that vanishes with the process, even when that is killed: text that is
    not redacted yet never has a name on the disk.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("")
        self._database.execute(f"PRAGMA cache_size = -{MEMORY_KIB}")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute(
            "CREATE TABLE parts (reader TEXT, id TEXT, raw BLOB, file TEXT, line INTEGER, start INTEGER, size INTEGER)"
        )
        self._rows: list[tuple[str, str, bytes, str, int, int, int]] = []

    def add(self, reader: str, group: str, raw: bytes, stretch: Stretch) -> None:
        """Add a part of a group of this reader, which lies in a stretch of a log."""
        self._rows.append((reader, group, raw, *stretch))
        if len(self._rows) >= ROWS_PER_WRITE:
            self._write()

    def groups(self, chains: Mapping[str, Chains]) -> Iterator[Group]:
        """The groups in the order of their first parts; each one's parts in the order they were read.

        Args:
            chains: By reader, what tells its groups apart by their contents; these come first.
        """
        self._write()
        columns = "raw, file, line, start, size"
        for reader, find in chains.items():
            parts = self._database.execute("SELECT rowid, raw FROM parts WHERE reader = ? ORDER BY rowid", (reader,))
            for numbers in find((number, orjson.loads(raw)) for number, raw in parts):
                one = f"SELECT {columns} FROM parts WHERE rowid = ?"
                yield _group(reader, "", [self._database.execute(one, (number,)).fetchone() for number in numbers])
        self._database.execute("CREATE INDEX IF NOT EXISTS by_group ON parts (reader, id)")
        found = self._database.execute("SELECT reader, id, MIN(rowid) AS first FROM parts GROUP BY reader, id ORDER BY first")
        for reader, name, _ in found:
            if reader not in chains:
                of_key = f"SELECT {columns} FROM parts WHERE reader = ? AND id = ? ORDER BY rowid"
                yield _group(reader, name, self._database.execute(of_key, (reader, name)).fetchall())

    def _write(self) -> None:
        self._database.executemany("INSERT INTO parts VALUES (?, ?, ?, ?, ?, ?, ?)", self._rows)
        self._rows = []

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._database.close()


def _group(reader: str, name: str, rows: list[tuple[bytes, str, int, int, int]]) -> Group:
    _, file, line, offset, _ = rows[0]
    origin = origin_of(Stretch(*row[1:]) for row in rows)
    return Group(reader, name, [row[0] for row in rows], Place(file, line), offset, origin)
