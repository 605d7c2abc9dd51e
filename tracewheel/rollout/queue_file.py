"""The SQLite file of a trajectory queue: its tables, its transactions, and the errors of files."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.store import disk_errors

SCHEMA = "1"
BUSY_SECONDS = 60.0
TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE orders (
    number INTEGER NOT NULL, attempt INTEGER NOT NULL, iteration INTEGER NOT NULL, body TEXT NOT NULL,
    state TEXT NOT NULL, worker TEXT, oldest INTEGER, ended_in INTEGER, PRIMARY KEY (number, attempt)
) WITHOUT ROWID;
CREATE INDEX orders_by_state ON orders (state, number);
CREATE TABLE trajectories (
    id TEXT PRIMARY KEY, number INTEGER NOT NULL, attempt INTEGER NOT NULL, sample INTEGER NOT NULL, record BLOB NOT NULL
);
CREATE INDEX trajectories_by_order ON trajectories (number, attempt, sample);
CREATE TABLE policies (version INTEGER PRIMARY KEY, base TEXT NOT NULL, adapter TEXT);
CREATE TABLE batches (iteration INTEGER PRIMARY KEY, version INTEGER NOT NULL, digest TEXT NOT NULL, dropped INTEGER NOT NULL);
CREATE TABLE workers (name TEXT PRIMARY KEY, started REAL NOT NULL, seen REAL NOT NULL, gone INTEGER NOT NULL) WITHOUT ROWID;
"""

Execute = Callable[..., sqlite3.Cursor]


class QueueFile:
    """An open file. Threads may share one; every process opens its own.

    It is in WAL mode with `synchronous=FULL`: a committed transaction survives a kill of the process and a power failure.
    WAL needs a local disk.

    Args:
        path: An existing file.

    Raises:
        DataError: it is not a queue of this schema.
        InfrastructureError: it cannot be opened; later also when the disk is full or the file stays locked.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise DataError(f"{path}: no such file")
        self.path = path
        self._lock = threading.RLock()
        with sqlite_errors(path):
            self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA synchronous=FULL")
            tables = {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        schema = self.facts().get("schema") if "facts" in tables else None
        if schema != SCHEMA:
            raise DataError(f"{path}: not a trajectory queue of schema {SCHEMA}" + (f", but of {schema}" if schema else ""))

    @staticmethod
    def create(path: Path, facts: dict[str, str]) -> None:
        """Make an empty queue, under another name first, so that the file is complete or absent."""
        partial = path.with_name(f".partial-{path.name}")
        with sqlite_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            for leftover in path.parent.glob(f"{partial.name}*"):
                leftover.unlink()
            connection = sqlite3.connect(partial, isolation_level=None)
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.executescript(f"BEGIN; {TABLES} COMMIT;")
                connection.executemany("INSERT INTO facts VALUES (?, ?)", [("schema", SCHEMA), *facts.items()])
            finally:
                connection.close()
            partial.replace(path)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def facts(self) -> dict[str, str]:
        """The properties of the whole queue."""
        return dict(self.read("SELECT name, value FROM facts"))

    def read(self, query: str, *values: Any) -> list[Any]:
        """The rows of a query; within a transaction, as it has changed them so far."""
        with self._lock, sqlite_errors(self.path):
            return self._connection.execute(query, values).fetchall()

    def number(self, query: str, *values: Any) -> Any:
        """The value of a query for one number."""
        return self.read(query, *values)[0][0]

    @contextlib.contextmanager
    def step(self) -> Iterator[Execute]:
        """One transaction."""
        with self._lock, sqlite_errors(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


@contextlib.contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into the project's."""
    with disk_errors(path):
        try:
            yield
        except (sqlite3.OperationalError, sqlite3.IntegrityError) as error:
            raise InfrastructureError(f"{path}: {error}") from error
        except sqlite3.ProgrammingError:
            raise
        except sqlite3.DatabaseError as error:
            raise DataError(f"{path}: not a trajectory queue: {error}") from error
