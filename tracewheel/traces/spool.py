"""Parts of groups, and requests, on disk until all files are read, as those of one trace may be in several files."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple

from tracewheel.traces.places import Origin, Stretch, origin_of
from tracewheel.traces.readers.conversation import history_hashes
from tracewheel.traces.readers.reader import LoggedRequest, Place

MEMORY_KIB = 64 << 10
ROWS_PER_WRITE = 1000

HASH_BYTES = 16
EQUALS_COMPARED = 64


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
        self.requests = RequestTable(self._database)
        self._rows: list[tuple[str, str, bytes, str, int, int, int]] = []
        self.is_empty = True

    def add(self, reader: str, group: str, raw: bytes, stretch: Stretch) -> None:
        """Add a part of a group of this reader, which lies in a stretch of a log."""
        self.is_empty = False
        self._rows.append((reader, group, raw, *stretch))
        if len(self._rows) >= ROWS_PER_WRITE:
            self._write()

    def add_request(self, request: LoggedRequest, raw: bytes, stretch: Stretch) -> None:
        """Add a logged request, which lies in a stretch of a log."""
        self.is_empty = False
        self.requests.add(request, raw, stretch)

    def groups(self) -> Iterator[Group]:
        """The groups in the order of their first parts; each one's parts in the order they were read."""
        self._write()
        self._database.execute("CREATE INDEX IF NOT EXISTS by_group ON parts (reader, id)")
        found = self._database.execute("SELECT reader, id, MIN(rowid) AS first FROM parts GROUP BY reader, id ORDER BY first")
        for *key, _ in found:
            rows = self._database.execute(
                "SELECT raw, file, line, start, size FROM parts WHERE reader = ? AND id = ? ORDER BY rowid", key
            ).fetchall()
            _, file, line, offset, _ = rows[0]
            origin = origin_of(Stretch(*row[1:]) for row in rows)
            yield Group(*key, [row[0] for row in rows], Place(file, line), offset, origin)

    def _write(self) -> None:
        self._database.executemany("INSERT INTO parts VALUES (?, ?, ?, ?, ?, ?, ?)", self._rows)
        self._rows = []

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._database.close()


class RequestChain(NamedTuple):
    """The records of one conversation's requests, the first one first; `origin` is where they lie."""

    raws: list[bytes]
    origin: Origin

    @property
    def place(self) -> Place:
        """That of the first."""
        return Place(self.origin[0].file, self.origin[0].line)

    @property
    def offset(self) -> int:
        """That of the first."""
        return self.origin[0].offset


class _Request(NamedTuple):
    number: int
    session: str | None
    user: str | None
    moment: float | None
    previous: str | None
    hashes: bytes


class RequestTable:
    """Requests in a temporary database, and the chains of those that continue one another.

    A request continues an earlier one if it sends that one's messages and response again, followed by more; the longest such
    beginning counts. Where several requests have it, each is continued by an attempt of its own. A branch is a chain of its
    own, which shares its beginning.

    Args:
        database: Its connection.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.execute(
            "CREATE TABLE requests (number INTEGER PRIMARY KEY, raw BLOB, file TEXT, line INTEGER, start INTEGER,"
            " length INTEGER, identity TEXT, previous TEXT, session TEXT, user TEXT, moment REAL, hashes BLOB, size INTEGER,"
            " head BLOB, tail BLOB, answered INTEGER, scored INTEGER, parent INTEGER, children INTEGER DEFAULT 0,"
            " linked INTEGER DEFAULT 0)"
        )
        self._rows: list[tuple[object, ...]] = []

    def add(self, request: LoggedRequest, raw: bytes, stretch: Stretch) -> None:
        """Add a request."""
        inputs = history_hashes(request.inputs)
        tail = history_hashes([*request.inputs, *request.outputs])[-1:] or [b""]
        scored = request.outcome is not None
        described = (request.id, request.previous, request.session, request.user, request.moment, b"".join(inputs), len(inputs))
        place_and_raw = (raw, *stretch)
        self._rows.append((*place_and_raw, *described, inputs[-1] if inputs else b"", tail[0], bool(request.outputs), scored))
        if len(self._rows) >= ROWS_PER_WRITE:
            self._write()

    def _write(self) -> None:
        self._database.executemany(
            "INSERT INTO requests (raw, file, line, start, length, identity, previous, session, user, moment, hashes, size,"
            " head, tail, answered, scored) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            self._rows,
        )
        self._rows = []

    def chains(self) -> Iterator[RequestChain]:
        """The conversations, in the order of their last requests."""
        self._write()
        self._link()
        ends = self._database.execute("SELECT number FROM requests WHERE children = 0 ORDER BY number").fetchall()
        for (number,) in ends:
            if not self._is_repeated(number):
                yield self._chain(number)

    def _link(self) -> None:
        """Find the parent of each request. Parents are shorter, or as long and without a response."""
        execute = self._database.execute
        for column in ("identity", "session", "tail", "head"):
            execute(f"CREATE INDEX by_{column} ON requests ({column})")
        # An id that one request alone has is the request's, not a session's.
        alone = "SELECT session FROM requests GROUP BY session HAVING COUNT(*) = 1"
        execute(f"UPDATE requests SET session = NULL WHERE session IN ({alone})")
        order = "ORDER BY size, answered, moment IS NULL, moment, number"
        for (number,) in execute(f"SELECT number FROM requests {order}").fetchall():
            row = execute("SELECT number, session, user, moment, previous, hashes FROM requests WHERE number = ?", (number,))
            request = _Request(*row.fetchone())
            parent = self._answer(request) if request.previous else self._continued(request)
            execute("UPDATE requests SET linked = 1, parent = ? WHERE number = ?", (parent, number))
            execute("UPDATE requests SET children = children + 1 WHERE number = ?", (parent,))

    def _answer(self, request: _Request) -> int | None:
        """The request whose response a request names as the one before it; None if there is none, or the names are a circle."""
        named = "SELECT number FROM requests WHERE identity = ? ORDER BY number LIMIT 1"
        found = self._database.execute(named, (request.previous,)).fetchone()
        ancestor = found
        while ancestor is not None and ancestor[0] is not None:
            if ancestor[0] == request.number:
                return None
            ancestor = self._database.execute("SELECT parent FROM requests WHERE number = ?", ancestor).fetchone()
        return found[0] if found else None

    def _continued(self, request: _Request) -> int | None:
        """The request that sent and received the longest beginning of a request's messages."""
        for end in range(len(request.hashes), 0, -HASH_BYTES):
            same = self._database.execute(
                "SELECT number, session, user, children, moment FROM requests WHERE tail = ? AND linked AND previous IS NULL"
                " ORDER BY children, number LIMIT ?",
                (request.hashes[end - HASH_BYTES : end], EQUALS_COMPARED),
            ).fetchall()
            fitting = [
                (children > 0, (session or request.session) != request.session, _is_later(moment, request.moment), number)
                for number, session, user, children, moment in same
                if _may_be_one(session, request.session) and _may_be_one(user, request.user)
            ]
            if fitting:
                return min(fitting)[-1]
        return None

    def _is_repeated(self, number: int) -> bool:
        """Whether another conversation goes on where this one ends: it was sent twice, or failed and was sent again.

        A session or score of its own makes it a conversation that ended there.
        """
        goes_on = "own.answered AND other.tail = own.tail AND other.children > 0"
        answered_later = "NOT own.answered AND other.head = own.tail AND other.answered"
        same = "(own.session IS NULL OR own.session IS other.session) AND (own.user IS NULL OR own.user IS other.user)"
        found = self._database.execute(
            "SELECT 1 FROM requests AS own JOIN requests AS other ON other.number <> own.number"
            f" AND (({goes_on}) OR ({answered_later})) AND {same}"
            " WHERE own.number = ? AND NOT own.scored AND own.previous IS NULL LIMIT 1",
            (number,),
        )
        return found.fetchone() is not None

    def _chain(self, number: int | None) -> RequestChain:
        rows: dict[int, tuple[bytes, str, int, int, int]] = {}
        while number is not None and number not in rows:
            *row, parent = self._database.execute(
                "SELECT raw, file, line, start, length, parent FROM requests WHERE number = ?", (number,)
            ).fetchone()
            rows[number], number = row, parent
        chain = [*reversed(rows.values())]
        return RequestChain([row[0] for row in chain], origin_of(Stretch(*row[1:]) for row in chain))


def _may_be_one(first: str | None, second: str | None) -> bool:
    return first is None or second is None or first == second


def _is_later(first: float | None, second: float | None) -> bool:
    return first is not None and second is not None and first > second
