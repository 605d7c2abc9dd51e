"""Looking into digests: episodes by filters and by words, the history of a task."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.store import FACTS
from tracewheel.curation.difficulty import pass_rate_ends
from tracewheel.dashboard.digests import FOLDER, Shelf
from tracewheel.dashboard.duck import select
from tracewheel.dashboard.facts import plain
from tracewheel.dashboard.measured import read_small

_PARTS = re.compile(r'(-?)"([^"]*)"|(\S+)')
MOST_WORDS = 32
# Columns of the digests, and of the runs that use them.
EQUAL = ("outcome", "fault", "blame", "stop", "kind", "split", "policy", "family", "task")
HELD = {"tool": "tools", "flaw": "flaws", "reason": "reasons"}
NUMBERS = {
    "iteration": "iteration = ?",
    "version": "oldest <= ? AND newest >= ?",
    "least": "tokens >= ?",
    "most": "tokens <= ?",
    "turns": "turns >= ?",
    "branches": "branches >= ?",
    "unmatched": "unmatched >= ?",
    "lost": "lost >= ?",
}
SORTS = {
    "iteration": "place, number",
    "tokens": "tokens",
    "turns": "turns",
    "total": "total",
    "outcome": "outcome",
    "fault": "fault",
    "version": "newest",
    "branches": "branches",
}
LATEST = "started, run, place, number"
CHOICES = {
    **{name: name for name in ("outcome", "fault", "blame")},
    "reason": "unnest(reasons)",
    "stop": "stop",
    "tool": "unnest(tools)",
    "flaw": "unnest(flaws)",
    **{name: name for name in ("policy", "split")},
    "iteration": "iteration::VARCHAR",
    "version": "newest::VARCHAR",
}
USES = (
    "file VARCHAR, run VARCHAR, started VARCHAR, entry VARCHAR, part VARCHAR, place INTEGER, kind VARCHAR, label VARCHAR, "
    "iteration INTEGER, policy VARCHAR, split VARCHAR, runs INTEGER"
)


@dataclass(frozen=True)
class Term:
    """A word or a phrase of a search.

    Attributes:
        text: As it was typed, without what says how it is meant.
        is_wanted: Whether it must be there, or must not.
        begins: Whether words that begin so are meant too.
    """

    text: str
    is_wanted: bool = True
    begins: bool = False

    @property
    def needle(self) -> str:
        """What stands in the words of an episode that has it."""
        return plain(self.text)[: -1 if self.begins else None]


def terms_of(words: str) -> list[Term]:
    """What a search asks for: `two words`, `"a phrase"`, `-without`, `begin*`."""
    found = []
    for minus, phrase, word in list(_PARTS.findall(words))[:MOST_WORDS]:
        text = word.removeprefix("-") if word else phrase
        if any(letter.isalnum() for letter in text):
            found.append(Term(text.rstrip("*") if word else text, not minus and not word.startswith("-"), word.endswith("*")))
    return found


@dataclass(frozen=True)
class Asked:
    """Which episodes are asked for.

    Attributes:
        values: Filters, by the names of `EQUAL`, `HELD` and `NUMBERS`.
        terms: What their text must hold, or must not.
        sort: One of `SORTS`; "" for the latest first.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    terms: Sequence[Term] = ()
    sort: str = ""
    up: bool = False
    first: int = 0
    shown: int = 100


def episodes_of(shelf: Shelf, asked: Asked) -> tuple[list[dict[str, Any]], int]:
    """A page of the episodes that pass, each stored result once, and how many pass.

    Returns:
        Rows with the columns of the digests but for the words, and with the latest run that has the episode (`run`), what
        it is there (`entry`, `part`, `label`, `kind`, `iteration`, `policy`, `split`), and how many runs have it (`runs`).
    """
    if not shelf.uses:
        return [], 0
    where, values = _conditions(asked)
    order = ", ".join(f"{part} {'ASC' if asked.up else 'DESC'}" for part in SORTS.get(asked.sort, LATEST).split(", "))
    query = (
        f"SELECT * EXCLUDE (words), count(*) OVER () found FROM episodes WHERE {where} "
        f"ORDER BY {order}, {LATEST} LIMIT ? OFFSET ?"
    )
    rows = _rows(shelf, query, [*values, asked.shown, asked.first], is_each_once=True)
    if rows or (asked.shown and not asked.first):
        return rows, int(rows[0]["found"]) if rows else 0
    return [], int(_rows(shelf, f"SELECT count(*) n FROM episodes WHERE {where}", values, is_each_once=True)[0]["n"])


def choices_of(shelf: Shelf) -> dict[str, list[tuple[str, int]]]:
    """The values that episodes have of what can be filtered, with their counts."""
    found: dict[str, list[tuple[str, int]]] = {name: [] for name in CHOICES}
    if not shelf.uses:
        return found
    counts = " UNION ALL ".join(
        f"SELECT '{name}' name, {place} place, value, count(*) n FROM (SELECT {column} value FROM episodes) GROUP BY ALL"
        for place, (name, column) in enumerate(CHOICES.items())
    )
    query = f"SELECT name, value, n FROM ({counts}) WHERE value <> '' ORDER BY place, TRY_CAST(value AS INTEGER), value"
    for row in _rows(shelf, query):
        found[row["name"]].append((row["value"], row["n"]))
    return found


def count_of(shelf: Shelf) -> int:
    """How many episodes can be found."""
    return int(_rows(shelf, "SELECT count(*) n FROM episodes", is_each_once=True)[0]["n"]) if shelf.uses else 0


COUNTS = "count(*) episodes, count(success) attempts, coalesce(sum(success), 0) successes"


def task_history(shelf: Shelf, task: str, first: int = 0, shown: int = 100) -> dict[str, Any] | None:
    """Everything that was played of a task.

    Args:
        shelf: Of the runs that count.
        task: Id of the task.
        first: How many rows to leave out.
        shown: At most so many rows.

    Returns:
        `family`, `tier`, `prompt`, `splits`, `first` and `last` (seconds since 1970 of the stored results), the figures of
        `rate_of` over all episodes, and `rows`: the same for each run and policy, the latest run first. None for a task
        that no run has.
    """
    known = _curated(shelf, task)
    # A stored result that several runs share counts once in the total, and in the row of each of them.
    query = f"SELECT {COUNTS}, list(DISTINCT entry) entries FROM episodes WHERE task = ?"
    total: dict[str, Any] = _rows(shelf, query, [task], is_each_once=True)[0] if shelf.uses else {"episodes": 0}
    if not known and not total["episodes"]:
        return None
    query = (
        f"SELECT run, started, kind, CASE kind WHEN 'rollout' THEN '' ELSE policy END policy, split, {COUNTS}, "
        "min(iteration) first, max(iteration) last FROM episodes WHERE task = ? "
        "GROUP BY run, started, kind, 4, split ORDER BY started DESC, run, min(place) LIMIT ? OFFSET ?"
    )
    rows = _rows(shelf, query, [task, shown, first]) if total["episodes"] else []
    facts = [read_small(shelf.store / FACTS / f"{entry}.json") for entry in total.get("entries") or ()]
    ends = [float(one["finished"]) for one in facts if one.get("finished")]
    counts = {name: total.get(name) or 0 for name in ("episodes", "attempts", "successes")}
    return {
        **{name: known[0][name] if known else None for name in ("family", "tier", "prompt")},
        "splits": sorted({row["split"] or "not used" for row in known}),
        **counts,
        "first": min(ends, default=None),
        "last": max(ends, default=None),
        **rate_of(counts["successes"], counts["attempts"]),
        "rows": [{**row, **rate_of(row["successes"], row["attempts"])} for row in rows],
    }


def train_counts(shelf: Shelf) -> dict[str, dict[str, Any]]:
    """What rollouts made of each training task: episodes, attempts, successes, first and last iteration."""
    query = (
        f"SELECT task, any_value(family) family, {COUNTS}, min(iteration) first, max(iteration) last "
        "FROM episodes WHERE kind = 'rollout' GROUP BY task"
    )
    rows = _rows(shelf, query) if shelf.uses else []
    return {row["task"]: {**row, **rate_of(row["successes"], row["attempts"])} for row in rows}


def rate_of(successes: float, attempts: int) -> dict[str, Any]:
    """`rate` (None without attempts), and as in curation `posterior` (the mean) and `ends` (90%)."""
    posterior, ends = (1.0 + successes) / (2.0 + attempts), pass_rate_ends(successes, attempts - successes)
    return {"rate": successes / attempts if attempts else None, "posterior": posterior, "ends": ends}


def task_named(shelf: Shelf, name: str, *, is_in_texts: bool = False) -> list[dict[str, Any]]:
    """The task of that name, with the latest run that has played it; empty where there is none.

    Where episodes have the name as a word, it must be a curated task: another look through all digests takes as long again.
    """
    curated = _curated(shelf, name)
    if is_in_texts and not curated:
        return []
    query = "SELECT task, run FROM episodes WHERE task = ? ORDER BY started DESC LIMIT 1"
    rows = _rows(shelf, query, [name]) if shelf.uses and name else []
    return [{**row, "prompt": next((one["prompt"] for one in curated), "")} for row in rows]


def _rows(shelf: Shelf, query: str, values: Sequence[Any] = (), *, is_each_once: bool = False) -> list[dict[str, Any]]:
    """Rows of a query over `episodes`: the digests with the runs that use them, or each with the latest of these alone."""
    by_file: dict[str, int] = {}
    for *_, file in shelf.uses:
        by_file[file] = by_file.get(file, 0) + 1
    uses, seen = [], set()
    for played, place, source, file in shelf.uses:
        if is_each_once and file in seen:
            continue
        seen.add(file)
        uses.append(
            {
                "file": file,
                "run": played.run,
                "started": played.started,
                "entry": source.entry,
                "part": source.part,
                "place": place,
                **{name: getattr(source, name) for name in ("kind", "label", "iteration", "policy", "split")},
                "runs": by_file[file],
            }
        )
    tables = (
        f"WITH uses AS (SELECT unnest(?::STRUCT({USES})[], recursive := true)), "
        "episodes AS (SELECT e.* EXCLUDE (filename), u.* FROM read_parquet(?, filename=true) e "
        "JOIN uses u ON e.filename = u.file)"
    )
    return select(f"{tables} {query}", [uses, sorted(by_file), *values], f"the digests in {FOLDER}, which may be deleted")


def _curated(shelf: Shelf, task: str) -> list[dict[str, Any]]:
    """A task as the curations of the runs have it."""
    try:
        query = "SELECT family, tier, prompt, split FROM read_parquet(?, union_by_name=true) WHERE id = ?"
        return select(query, [[str(file) for file in shelf.tasks], task]) if shelf.tasks else []
    except DataError:  # freed or damaged: what was played is shown without it
        return []


def _conditions(asked: Asked) -> tuple[str, list[Any]]:
    """Conditions in SQL with question marks, and what stands for these."""
    found: list[tuple[str, list[Any]]] = []
    given = {name: value for name, value in asked.values.items() if value}
    found += [(f"{name} = ?", [given[name]]) for name in EQUAL if name in given]
    found += [(f"list_contains({column}, ?)", [given[name]]) for name, column in HELD.items() if name in given]
    for name, condition in NUMBERS.items():
        text = given.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 10:
            found.append((condition, [int(text)] * condition.count("?")))
    found += [(f"{'' if one.is_wanted else 'NOT '}contains(words, ?)", [one.needle]) for one in asked.terms]
    return " AND ".join(condition for condition, _ in found) or "true", [value for _, several in found for value in several]
