"""A query judged by its result on the goal's database."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any

from tracewheel import AnswerArgs, Count, Episode, Task, Verdict

READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_FUNCTION}
# Their result differs from call to call, or they reach out of the database.
FORBIDDEN_FUNCTIONS = {
    "random", "randomblob", "load_extension", "current_timestamp", "current_date", "current_time", "date", "time", "datetime",
    "julianday", "unixepoch", "strftime", "timediff", "last_insert_rowid", "changes", "total_changes", "readfile", "writefile",
}  # fmt: skip
LONGEST_QUERY, INSTRUCTIONS, CHECKED_EVERY = 20_000, 10_000, 100
# What counting instructions does not bound: a call of a function on long texts is one, and so is a row of many long values.
LONGEST_VALUE, LONGEST_PATTERN, MOST_RESULT, MOST_MEMORY, CPU_SECONDS = 100_000, 1_000, 32 << 20, 1 << 30, 10.0


class SqlResultArgs(AnswerArgs):
    """How results are compared, and how much work a query may be.

    The goal holds the right query at `gold` and the database at `database`: `{table: [{column: value}]}`, or a list of several
    databases, on all of which the results must agree, so that no query with the answer written into it passes.

    `ordered` compares rows in order, else as multisets. `column_names` compares those too. Fractions are rounded to `digits`.
    """

    gold: str = "query"
    database: str = "database"
    ordered: bool = False
    column_names: bool = False
    digits: Count = 6
    max_rows: Count = 10_000
    max_steps: Count = 5_000


class SqlResultVerifier:
    """1 where the agent's query gives the rows of the right one.

    >>> from tracewheel import episode_from
    >>> rows = {"orders": [{"id": 1, "paid": 20}, {"id": 2, "paid": 5}]}
    >>> goal = {"query": "SELECT id FROM orders WHERE paid > 10", "database": rows}
    >>> task = Task("t1", "chat", "sql", 1, "Which orders paid more than 10?", {}, goal, "sql_result", "t1")
    >>> episode = episode_from([{"role": "assistant", "content": "select id from orders where not paid <= 10"}], 0, {})
    >>> SqlResultVerifier().verify_episode(task, episode).total
    1.0

    Each query runs in a SQLite database in memory of its own, which it can only read: one statement, no write, no
    attached file, no function whose result depends on time or chance. What it may cost is counted in instructions of
    SQLite (`max_steps` times 10,000) and rows, not in seconds, so that a score does not depend on the machine. A
    query that fails is wrong, as is one with a value of more than 100,000 bytes, a result of more than 32 MiB, a need of
    more than 1 GiB, or, where instructions take long, one that computes for 10 seconds.

    Raises:
        KeyError: the goal lacks a part.
        ValueError: the goal's database or query is broken; the episode stays unscored.
    """

    kind = "sql_result"
    Args = SqlResultArgs

    def __init__(self, args: SqlResultArgs | None = None) -> None:
        self._args = args or SqlResultArgs()

    def verify_episode(self, task: Task, episode: Episode) -> Verdict:
        answer, right = self._args.answer(episode, ""), self._args.wanted(task)
        given = task.goal[self._args.database]
        ran, equal, why = [], [], ""
        for tables in given if isinstance(given, list) else [given]:
            try:
                wanted = self._result(tables, right)
            except (sqlite3.Error, MemoryError, TypeError, AttributeError) as error:
                raise ValueError(f"the goal's query or database: {error}") from error
            if not answer or not isinstance(answer, str):
                return Verdict(0.0, {"runs": 0.0, "equal": 0.0}, str(answer), "no query")
            try:
                found = self._result(tables, answer)
            except (sqlite3.Error, MemoryError, ValueError) as error:
                return Verdict(0.0, {"runs": 0.0, "equal": 0.0}, answer, f"the query failed: {error}")
            ran.append(True)
            equal.append(found == wanted)
            why = why or ("" if equal[-1] else f"{len(found[1])} rows, {len(wanted[1])} are right")
        total = float(bool(ran) and all(equal))
        return Verdict(total, {"runs": float(bool(ran)), "equal": total}, str(answer), why)

    def _result(self, tables: dict[str, list[dict[str, Any]]], query: str) -> tuple[Any, list[Any]]:
        """Column names, where they count, and the rows, sorted where their order does not count."""
        if len(query) > LONGEST_QUERY:
            raise ValueError(f"longer than {LONGEST_QUERY} characters")
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        try:
            _fill(connection, tables)
            self._confine(connection)
            cursor = connection.execute(query.strip().rstrip(";"))
            if cursor.description is None:
                raise ValueError("it gives no rows")
            plain, size = [], 0
            for row in cursor:
                plain.append(tuple(self._plain(value) for value in row))
                size += sum(len(value) if isinstance(value, str | bytes) else 8 for value in row)
                if len(plain) > self._args.max_rows or size > MOST_RESULT:
                    raise ValueError(f"more than {self._args.max_rows} rows or {MOST_RESULT >> 20} MiB")
            names = [column[0].lower() for column in cursor.description] if self._args.column_names else len(cursor.description)
            return names, plain if self._args.ordered else sorted(plain, key=repr)
        finally:
            connection.close()

    def _confine(self, connection: sqlite3.Connection) -> None:
        steps, most = 0, self._args.max_steps * INSTRUCTIONS // CHECKED_EVERY
        until = time.thread_time() + CPU_SECONDS

        def counted() -> bool:
            nonlocal steps
            steps += 1
            return steps > most or time.thread_time() > until

        def allowed(action: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
            if action not in READING or (action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in FORBIDDEN_FUNCTIONS):
                return sqlite3.SQLITE_DENY
            return sqlite3.SQLITE_OK

        connection.execute("PRAGMA query_only = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA hard_heap_limit = {MOST_MEMORY}")  # of all connections of the process together
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, LONGEST_PATTERN)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_authorizer(allowed)
        connection.set_progress_handler(counted, CHECKED_EVERY)

    def _plain(self, value: Any) -> tuple[str, Any]:
        """A value that compares as SQL does: numbers by value, text apart from them."""
        if isinstance(value, int | float):
            rounded = round(float(value), self._args.digits) if isinstance(value, float) else value
            return "number", int(rounded) if rounded == rounded and abs(rounded) < 2**53 and rounded == int(
                rounded
            ) else rounded
        return type(value).__name__, value


def _fill(connection: sqlite3.Connection, tables: dict[str, list[dict[str, Any]]]) -> None:
    for name, rows in tables.items():
        columns: Sequence[str] = list(dict.fromkeys(column for row in rows for column in row))
        if not columns:
            raise ValueError(f"table '{name}' has no rows, so its columns are not known")
        connection.execute(f"CREATE TABLE {_quoted(name)} ({', '.join(map(_quoted, columns))})")
        values = [[row.get(column) for column in columns] for row in rows]
        connection.executemany(f"INSERT INTO {_quoted(name)} VALUES ({', '.join('?' * len(columns))})", values)
    connection.commit()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
