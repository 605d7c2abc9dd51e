"""Trajectories of a run, read with DuckDB from the Parquet files of the store: nothing is loaded whole."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from tracewheel.core.errors import DataError
from tracewheel.core.types import Trajectory
from tracewheel.dashboard.library import NotThere
from tracewheel.dashboard.sources import Source
from tracewheel.dashboard.text import value_of

MEMORY, THREADS = "192MB", 2
# All columns but the lists of tokens, which only the page of one trajectory reads.
PLAIN = (
    'id, task_id, "group", sample, seed, policy_version, temperature, turns, messages, stop_reason, detail, forks, '
    "branches, requests, fault, traceback, final_state, len(token_ids) tokens, list_sum(action_mask) generated"
)
# Columns of text that a file of trajectories has only where it has something to say in them, and that older ones lack.
OPTIONAL = ("forks", *sorted(Trajectory.OPTIONAL_FIELDS))
NOT_SCORED = (
    "NULL::VARCHAR status, NULL::DOUBLE total, NULL::VARCHAR breakdown, NULL::VARCHAR family, NULL::VARCHAR why, "
    "'not scored' outcome"
)
OUTCOME = (
    "CASE WHEN s.status IS NULL THEN 'not scored' WHEN s.status <> 'scored' THEN s.status WHEN s.total >= 1 THEN 'solved' "
    "WHEN s.total > 0 THEN 'partial' ELSE 'failed' END"
)
_connection: duckdb.DuckDBPyConnection | None = None
_lock = threading.Lock()


def cursor() -> duckdb.DuckDBPyConnection:
    """A cursor of the one connection of this process, with bounded memory and threads."""
    global _connection
    with _lock:
        if _connection is None:
            _connection = duckdb.connect(
                config={"memory_limit": MEMORY, "threads": THREADS, "preserve_insertion_order": "true"}
            )
            _connection.execute("SET enable_progress_bar = false")
        return _connection.cursor()


class Episodes:
    """The episodes of some sources as one table.

    The table has the columns of the trajectories but for the tokens (`PLAIN`), of the scores `status`, `total`, `breakdown`,
    `family` and `why` (the score's detail), `place` (index of the source), and `outcome`: `solved`, `failed`, `partial`,
    `unscored` or another status of a score.

    Args:
        sources: Where they are. A file that is being written is not among them: the store's results are whole.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = list(sources)

    @contextmanager
    def table(self) -> Iterator[tuple[duckdb.DuckDBPyConnection, str]]:
        """A cursor, and the name of a view over all episodes.

        Raises:
            DataError: a file is damaged.
        """
        database = cursor()
        try:
            database.execute(f"CREATE OR REPLACE TEMP VIEW episodes AS {self._select()}")
            yield database, "episodes"
        except duckdb.Error as flaw:
            raise DataError(f"the episodes cannot be read: {flaw}") from flaw
        finally:
            database.close()

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Rows of a query over `episodes`.

        Args:
            query: SQL in which `{episodes}` stands for the table; what comes from a request goes into `values`, never here.
            values: For the question marks.
        """
        if not self.sources:
            return []
        with self.table() as (database, name):
            found = database.execute(query.replace("{episodes}", name), list(values))
            names = [column[0] for column in found.description or ()]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def _select(self) -> str:
        places = _values([(one.trajectories, place) for place, one in enumerate(self.sources)])
        scored = [(one.scores, place) for place, one in enumerate(self.sources) if one.scores is not None]
        plain = f"""
            SELECT t.* EXCLUDE (filename), p.place
            FROM (SELECT {PLAIN}, filename FROM {_trajectories([one.trajectories for one in self.sources])}) t
            JOIN (VALUES {places}) p(file, place) ON t.filename = p.file"""
        if not scored:
            return f"SELECT *, {NOT_SCORED} FROM ({plain})"
        return f"""
            SELECT e.*, s.status, s.total, s.breakdown, s.family, s.why, {OUTCOME} outcome
            FROM ({plain}) e LEFT JOIN (
                SELECT trajectory_id, status, total, breakdown, family, detail why, q.place
                FROM {_files([path for path, _ in scored])} r
                JOIN (VALUES {_values(scored)}) q(file, place) ON r.filename = q.file
            ) s ON s.trajectory_id = e.id AND s.place = e.place"""


def one_trajectory(source: Source, trajectory: str) -> dict[str, Any]:
    """A trajectory with its tokens and its score.

    Returns:
        The columns of both files; `turns`, `messages`, `forks`, `branches`, `requests`, `final_state`, `breakdown` and
        `turn_rewards` as values. `forks`, `branches`, `requests`, `fault`, `traceback`, `answer` and `explanation` are there
        in any case, empty where the file has none.

    Raises:
        NotThere: the source has no such trajectory.
        DataError: a file is damaged.
    """
    database = cursor()
    try:
        row = _first(database, source.trajectories, "id", trajectory)
        if row is None:
            raise NotThere(f"{source.label} has no trajectory {trajectory!r}")
        score = _first(database, source.scores, "trajectory_id", trajectory) if source.scores else None
    except duckdb.Error as flaw:
        raise DataError(f"{source.trajectories}: cannot be read: {flaw}") from flaw
    finally:
        database.close()
    score = score or {}
    found = row | {name: score.get(name) for name in ("status", "total", "breakdown", "turn_rewards", "family")}
    found["why"] = score.get("detail") or ""
    found |= {name: row.get(name) or "" for name in OPTIONAL if name != "forks"}
    found |= {name: score.get(name) or "" for name in ("answer", "explanation")}
    for name in ("turns", "messages", "forks", "final_state", "breakdown"):
        found[name] = parsed(found.get(name))
    for name, otherwise in (("branches", []), ("requests", {})):
        value = parsed(found[name])
        found[name] = value if isinstance(value, type(otherwise)) else otherwise
    return found


def parsed(text: Any) -> Any:
    """The value of a column that holds JSON; the text itself where it is none."""
    if not isinstance(text, str | bytes):
        return text
    try:
        return value_of(text)
    except ValueError:
        return text


def _first(database: duckdb.DuckDBPyConnection, file: Path, column: str, value: str) -> dict[str, Any] | None:
    found = database.execute(f"SELECT * FROM {_files([file])} WHERE {column} = ? LIMIT 1", [value])
    names = [part[0] for part in found.description or ()]
    row = found.fetchone()
    return None if row is None else dict(zip(names, row, strict=True))


def _trajectories(paths: Sequence[Path]) -> str:
    """The files of trajectories as a table that has all columns."""
    empty = ", ".join(f"NULL::VARCHAR {name}" for name in OPTIONAL)
    return f"(SELECT * FROM {_files(paths)} UNION ALL BY NAME SELECT {empty} WHERE false)"


def _files(paths: Sequence[Path]) -> str:
    return f"read_parquet([{', '.join(_text(str(path)) for path in paths)}], filename=true, union_by_name=true)"


def _values(rows: Sequence[tuple[Path, int]]) -> str:
    return ", ".join(f"({_text(str(path))}, {place})" for path, place in rows)


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
