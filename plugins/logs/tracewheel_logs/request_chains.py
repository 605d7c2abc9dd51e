"""Which requests of a log continue one another, as each repeats the conversation so far."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from tracewheel import history_hashes
from tracewheel_logs.logged_request import LoggedRequest

ROWS_PER_WRITE = 1000
HASH_BYTES = 16
EQUALS_COMPARED = 64


class _Request(NamedTuple):
    number: int
    session: str | None
    user: str | None
    moment: float | None
    previous: str | None
    hashes: bytes


class RequestTable:
    """Requests in a temporary database, without their texts, and the chains of those that continue one another.

    A request continues an earlier one if it sends that one's messages and response again, followed by more; the longest such
    beginning counts. Where several requests have it, each is continued by an attempt of its own. A branch is a chain of its
    own, which shares its beginning.

    Args:
        database: Its connection.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.execute(
            "CREATE TABLE requests (number INTEGER PRIMARY KEY, identity TEXT, previous TEXT, session TEXT, user TEXT,"
            " moment REAL, hashes BLOB, size INTEGER, head BLOB, tail BLOB, answered INTEGER, scored INTEGER,"
            " parent INTEGER, children INTEGER DEFAULT 0, linked INTEGER DEFAULT 0)"
        )
        self._rows: list[tuple[object, ...]] = []

    def add(self, number: int, request: LoggedRequest) -> None:
        """Add a request; numbers rise."""
        inputs = history_hashes(request.inputs)
        tail = history_hashes([*request.inputs, *request.outputs])[-1:] or [b""]
        scored = request.outcome is not None
        described = (request.id, request.previous, request.session, request.user, request.moment, b"".join(inputs), len(inputs))
        self._rows.append((number, *described, inputs[-1] if inputs else b"", tail[0], bool(request.outputs), scored))
        if len(self._rows) >= ROWS_PER_WRITE:
            self._write()

    def _write(self) -> None:
        self._database.executemany(
            "INSERT INTO requests (number, identity, previous, session, user, moment, hashes, size, head, tail, answered,"
            " scored) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            self._rows,
        )
        self._rows = []

    def chains(self) -> Iterator[list[int]]:
        """The requests of each conversation, the first one first, in the order of their last requests."""
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

    def _chain(self, number: int | None) -> list[int]:
        chain: dict[int, None] = {}
        while number is not None and number not in chain:
            chain[number] = None
            (number,) = self._database.execute("SELECT parent FROM requests WHERE number = ?", (number,)).fetchone()
        return [*reversed(chain)]


def _may_be_one(first: str | None, second: str | None) -> bool:
    return first is None or second is None or first == second


def _is_later(first: float | None, second: float | None) -> bool:
    return first is not None and second is not None and first > second
