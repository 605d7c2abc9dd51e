"""Trajectories of a run, read with DuckDB from the Parquet files of the store: nothing is loaded whole."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.types import Trajectory
from tracewheel.dashboard.duck import select
from tracewheel.dashboard.facts import words_of
from tracewheel.dashboard.library import NotThere, Place
from tracewheel.dashboard.sources import TRAJECTORIES, Source, source_at
from tracewheel.dashboard.text import value_of
from tracewheel.report.finished_run import FinishedRun

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
AROUND = 110  # characters on each side of the words of a search


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

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Rows of a query over `episodes`.

        Args:
            query: SQL in which `{episodes}` stands for the table; what comes from a request goes into `values`, never here.
            values: For the question marks.

        Raises:
            DataError: a file is damaged.
        """
        if not self.sources:
            return []
        return select(f"WITH episodes AS ({self._table()}) {query.replace('{episodes}', 'episodes')}", values, "the episodes")

    def _table(self) -> str:
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
    row = _first(source.trajectories, "id", trajectory)
    if row is None:
        raise NotThere(f"{source.label} has no trajectory {trajectory!r}")
    score = (_first(source.scores, "trajectory_id", trajectory) if source.scores else None) or {}
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


def trajectory_at(run: FinishedRun, name: str) -> tuple[Source, dict[str, Any]]:
    """A trajectory by `ENTRY/PART/ID`, as the page of two trajectories takes it.

    Raises:
        NotThere: it is not of that form, or there is none.
    """
    words = name.split("/")
    if len(words) != 3:
        raise NotThere(f"{name!r} names no trajectory; give ENTRY/PART/ID, with - for a result without parts")
    source = source_at(run, words[0], words[1])
    return source, one_trajectory(source, words[2])


def with_excerpts(place: Place, rows: Sequence[dict[str, Any]], words: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of a search with `excerpt`: text before, the words, text after. Empty where the store has lost the episode."""
    files = sorted({str(place.path / "store" / row["entry"] / row["part"] / TRAJECTORIES) for row in rows})
    texts: dict[str, str] = {}
    if files:
        query = f"SELECT id, messages FROM read_parquet(?) WHERE id IN ({', '.join('?' for _ in rows)})"
        try:
            found = select(query, [files, *(row["trajectory"] for row in rows)])
            texts = {one["id"]: words_of(value_of(one["messages"])) for one in found}
        except (DataError, ValueError):
            pass  # freed or damaged since it was read: the rows are shown without their words
    return [row | {"excerpt": excerpt(texts.get(row["trajectory"], ""), words)} for row in rows]


def excerpt(text: str, words: Sequence[str]) -> tuple[str, str, str]:
    """The surroundings of the first of some words in a text; its beginning where none is there as it was typed."""
    for word in words:
        pieces = [re.escape(piece) for piece in re.findall(r"\w+", word)]
        found = re.search(r"[\W_]+".join(pieces), text, re.IGNORECASE) if pieces else None
        if found:
            begin, end = max(0, found.start() - AROUND), found.end() + AROUND
            return ("…" if begin else "") + text[begin : found.start()], found.group(), text[found.end() : end]
    return text[: 2 * AROUND], "", ""


def parsed(text: Any) -> Any:
    """The value of a column that holds JSON; the text itself where it is none."""
    if not isinstance(text, str | bytes):
        return text
    try:
        return value_of(text)
    except ValueError:
        return text


def _first(file: Path, column: str, value: str) -> dict[str, Any] | None:
    return next(iter(select(f"SELECT * FROM {_files([file])} WHERE {column} = ? LIMIT 1", [value], file)), None)


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
