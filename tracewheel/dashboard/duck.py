"""DuckDB over the Parquet files of stores: one connection with bounded memory, and rows as dictionaries."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import DataError

if TYPE_CHECKING:  # imported where it is used: a run loads pages for its report, and DuckDB says much when a run is stopped
    import duckdb

MEMORY, THREADS = "192MB", 2
_connection: duckdb.DuckDBPyConnection | None = None
_lock = threading.Lock()


def select(query: str, values: Sequence[Any] = (), of: object = "the stored results") -> list[dict[str, Any]]:
    """Rows of a query; what comes from a request goes into `values`, for the question marks.

    Raises:
        DataError: a file is damaged, or lacks a column.
    """
    import duckdb

    database = _cursor()
    try:
        found = database.execute(query, list(values))
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    except duckdb.Error as flaw:
        raise DataError(f"{of}: cannot be read: {flaw}") from flaw
    finally:
        database.close()


def columns_of(files: Sequence[str]) -> set[str]:
    """The columns that some of the files have.

    Raises:
        DataError: a file is damaged.
    """
    return {row["column_name"] for row in select("DESCRIBE SELECT * FROM read_parquet(?, union_by_name=true)", [list(files)])}


def _cursor() -> duckdb.DuckDBPyConnection:
    import duckdb

    global _connection
    with _lock:
        if _connection is None:
            _connection = duckdb.connect(
                config={"memory_limit": MEMORY, "threads": THREADS, "preserve_insertion_order": "true"}
            )
            _connection.execute("SET enable_progress_bar = false")
            _connection.execute("SET parquet_metadata_cache = true")  # a search opens many small files
        return _connection.cursor()


@atexit.register
def _close() -> None:
    """Close the connection while Python still runs: where other threads outlive it, DuckDB would print that objects leak."""
    global _connection
    with _lock:
        if _connection is not None:
            _connection.close()
            _connection = None
