"""Looking into an index: episodes of a run by filters, words in all episodes, the history of a task."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracewheel.curation.difficulty import CONFIDENCE, beta_quantile
from tracewheel.dashboard.index.facts import mark, tool_names

_PARTS = re.compile(r'(-?)"([^"]*)"|(\S+)')
MOST_WORDS = 32


def full_text_query(words: str, marks: dict[str, str]) -> str:
    """A query of FTS5.

    Args:
        words: `two words` are both in the episode, `"a phrase"` is there as it stands, `-word` is not, `wor*` begins so.
        marks: Kind to value of what is filtered: outcome, fault, stop, tool.

    Returns:
        "" where nothing is asked for.
    """
    wanted, unwanted = _terms(words)
    parts = [f"text : ({' AND '.join(wanted)})"] if wanted else []
    chosen = [_quoted(mark(kind, value)) for kind, value in marks.items() if value]
    if chosen:
        parts.append(f"marks : ({' AND '.join(chosen)})")
    if not parts:
        return ""
    query = " AND ".join(parts)
    return f"({query}) NOT text : ({' OR '.join(unwanted)})" if unwanted else query


def plain_words(words: str) -> list[str]:
    """The words and phrases that must be there, as they were typed: what a page marks in the text."""
    found = []
    for match in list(_PARTS.finditer(words))[:MOST_WORDS]:
        text = match.group(2) if match.group(3) is None else match.group(3)
        if not (match.group(1) or text.startswith("-")) and _is_word(text):
            found.append(text.rstrip("*"))
    return found


def _terms(words: str) -> tuple[list[str], list[str]]:
    wanted: list[str] = []
    unwanted: list[str] = []
    for match in list(_PARTS.finditer(words))[:MOST_WORDS]:
        minus, phrase, word = match.groups()
        text = phrase if word is None else word
        if word is not None and word.startswith("-"):
            minus, text = "-", word[1:]
        if not _is_word(text):
            continue
        begins = word is not None and text.endswith("*")
        (unwanted if minus else wanted).append(_quoted(text.rstrip("*")) + (" *" if begins else ""))
    return wanted, unwanted


def _is_word(text: str) -> bool:
    return any(letter.isalnum() for letter in text)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""').replace("\0", " ") + '"'


CHOICES = ("outcome", "fault", "blame", "reason", "stop", "tool", "flaw", "policy", "split", "iteration", "version")
COUNTED = 10_000  # matches beyond are "more than"
EQUAL = {
    "outcome": "e.outcome",
    "fault": "e.fault",
    "blame": "e.blame",
    "stop": "e.stop",
    "kind": "u.kind",
    "split": "u.split",
    "policy": "u.policy",
}
NUMBERS = {
    "iteration": "u.iteration = ?",
    "version": "e.oldest <= ? AND e.newest >= ?",
    "least": "e.tokens >= ?",
    "most": "e.tokens <= ?",
    "turns": "e.turns >= ?",
    "branches": "e.branches >= ?",
    "unmatched": "e.unmatched >= ?",
    "lost": "e.lost >= ?",
}
SORTS = {
    "iteration": "u.place, e.id",
    "tokens": "e.tokens",
    "turns": "e.turns",
    "total": "e.total",
    "outcome": "e.outcome",
    "fault": "e.fault",
    "version": "e.newest",
    "branches": "e.branches",
}
COLUMNS = (
    "e.id, e.trajectory, e.outcome, e.total, e.success, e.fault, e.detail, e.flaws, e.stop, e.tools, e.turns, e.calls, "
    "e.tokens, e.generated, e.oldest, e.newest, e.sample, e.blame, e.branches, e.reasons, "
    "e.unmatched, e.lost, t.task, t.family, t.tier, s.entry, s.part"
)


@dataclass(frozen=True)
class Asked:
    """Filters of a list of episodes, by the names of `EQUAL` and `NUMBERS`, and `tool`, `flaw`, `reason`, `family`, `task`."""

    values: Mapping[str, str]
    sort: str = "iteration"
    up: bool = False
    first: int = 0
    shown: int = 100


def run_number(database: sqlite3.Connection, run_id: str) -> int | None:
    """The number of a run in the index; None where it is not there yet."""
    row = database.execute("SELECT id FROM runs WHERE run = ?", (run_id,)).fetchone()
    return None if row is None else int(row[0])


def episodes_of(database: sqlite3.Connection, run: int, asked: Asked) -> tuple[list[dict[str, Any]], int]:
    """A page of a run's episodes that pass the filters, and how many pass."""
    where, values = _conditions(asked.values)
    tables = f"uses u JOIN episodes e ON e.source = u.source JOIN tasks t ON t.id = e.task WHERE u.run = ?{where}"
    count = database.execute(f"SELECT count(*) FROM {tables}", (run, *values)).fetchone()[0]
    order = ", ".join(f"{part} {'ASC' if asked.up else 'DESC'}" for part in SORTS[asked.sort].split(", "))
    # The narrow table is sorted first: the wide columns are read of the shown rows alone.
    rows = database.execute(
        f"WITH shown AS (SELECT e.id, u.place, u.label, u.iteration, u.policy, u.split, u.kind FROM {tables} "
        f"ORDER BY {order} LIMIT ? OFFSET ?) "
        f"SELECT {COLUMNS}, shown.label, shown.iteration, shown.policy, shown.split, shown.kind FROM shown "
        "JOIN episodes e ON e.id = shown.id JOIN tasks t ON t.id = e.task JOIN sources s ON s.id = e.source "
        f"ORDER BY {order.replace('u.place', 'shown.place')}",
        (run, *values, asked.shown, asked.first),
    ).fetchall()
    return [_row(row) for row in rows], count


def choices_of(database: sqlite3.Connection, run: int) -> dict[str, list[tuple[str, int]]]:
    """The values that a run's episodes have of what can be filtered, with their counts."""
    found: dict[str, dict[str, int]] = {name: {} for name in CHOICES}
    rows = database.execute(
        "SELECT e.outcome, e.fault, e.stop, e.tools, e.flaws, u.policy, u.split, u.iteration, e.newest, e.blame, e.reasons, "
        "count(*) FROM uses u JOIN episodes e ON e.source = u.source WHERE u.run = ? "
        "GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11",
        (run,),
    )
    for outcome, fault, stop, tools, flaws, policy, split, iteration, version, blame, reasons, count in rows:
        plain = {"outcome": outcome, "fault": fault, "blame": blame, "stop": stop, "policy": policy, "split": split}
        numbers = {"iteration": iteration, "version": version}
        for name, value in {**plain, **{key: "" if each is None else str(each) for key, each in numbers.items()}}.items():
            if value:
                found[name][value] = found[name].get(value, 0) + count
        for name, several in (("tool", tool_names(tools)), ("flaw", listed(flaws)), ("reason", listed(reasons))):
            for value in several:
                found[name][value] = found[name].get(value, 0) + count
    numeric = ("iteration", "version")
    return {
        name: sorted(counts.items(), key=lambda item: (int(item[0]) if name in numeric else 0, item[0]))
        for name, counts in found.items()
    }


def search(
    database: sqlite3.Connection, words: str, marks: dict[str, str], runs: Collection[int], first: int, shown: int
) -> tuple[list[dict[str, Any]], int]:
    """Episodes with some words, the latest first.

    Args:
        database: An index.
        words: As `full_text_query` takes them.
        marks: Likewise.
        runs: Only episodes of these runs; of all where it is empty.
        first: How many to leave out.
        shown: At most so many.

    Returns:
        Rows with a run that has the episode (`run`, its latest) and how many have it (`runs`); and the number of matches,
        `COUNTED` + 1 where there are more.
    """
    query = full_text_query(words, marks)
    if not query:
        return [], 0
    numbers = list(runs)
    inner = "SELECT e.id FROM words w JOIN episodes e ON e.id = w.rowid WHERE words MATCH ?"
    if numbers:
        holes = ", ".join("?" for _ in numbers)
        inner += f" AND e.source IN (SELECT source FROM uses WHERE run IN ({holes}))"
    count = database.execute(f"SELECT count(*) FROM ({inner} LIMIT {COUNTED + 1})", (query, *numbers)).fetchone()[0]
    rows = database.execute(
        f"WITH shown AS ({inner} ORDER BY w.rowid DESC LIMIT ? OFFSET ?) SELECT {COLUMNS}, e.source FROM shown "
        "JOIN episodes e ON e.id = shown.id JOIN tasks t ON t.id = e.task JOIN sources s ON s.id = e.source "
        "ORDER BY e.id DESC",
        (query, *numbers, shown, first),
    ).fetchall()
    return [_row(row) | _use_of(database, row["source"], numbers) for row in rows], count


def task_history(
    database: sqlite3.Connection, task: str, runs: Collection[int], begin: int = 0, shown: int = 100
) -> dict[str, Any] | None:
    """Everything that was played of a task.

    Args:
        database: An index.
        task: Id of the task.
        runs: Only these; all where it is empty.
        begin: How many rows to leave out.
        shown: At most so many rows.

    Returns:
        `family`, `tier`, `prompt`, `splits`, `first` and `last` (seconds since 1970 of the stored results), the figures of
        `rate_of` over all episodes, and `rows`: the same for each run and policy, the latest run first. None for a task
        that no run has.
    """
    known = database.execute("SELECT id, family, tier, prompt FROM tasks WHERE task = ?", (task,)).fetchone()
    if known is None:
        return None
    numbers = list(runs)
    only = f" AND u.run IN ({', '.join('?' for _ in numbers)})" if numbers else ""
    # A stored result that several runs share counts once in the total, and in the row of each of them.
    total = database.execute(
        "SELECT count(*) episodes, count(e.success) attempts, coalesce(sum(e.success), 0) successes, min(s.finished) first, "
        "max(s.finished) last FROM episodes e JOIN sources s ON s.id = e.source "
        f"WHERE e.task = ? AND e.source IN (SELECT u.source FROM uses u WHERE 1{only})",
        (known["id"], *numbers),
    ).fetchone()
    rows = database.execute(
        "SELECT r.run, r.started, u.kind, CASE u.kind WHEN 'rollout' THEN '' ELSE u.policy END policy, u.split, "
        "count(*) episodes, count(e.success) attempts, coalesce(sum(e.success), 0) successes, "
        "min(u.iteration) first, max(u.iteration) last FROM episodes e JOIN uses u ON u.source = e.source "
        f"JOIN runs r ON r.id = u.run WHERE e.task = ?{only} GROUP BY r.id, u.kind, 4, u.split ORDER BY r.started DESC, r.id, "
        "min(u.place) LIMIT ? OFFSET ?",
        (known["id"], *numbers, shown, begin),
    ).fetchall()
    splits = database.execute("SELECT DISTINCT split FROM sides WHERE task = ? ORDER BY split", (known["id"],)).fetchall()
    return {
        **{name: known[name] for name in ("family", "tier", "prompt")},
        "splits": [row[0] or "not used" for row in splits],
        **dict(total),
        **rate_of(total["successes"], total["attempts"]),
        "rows": [{**dict(row), **rate_of(row["successes"], row["attempts"])} for row in rows],
    }


def train_counts(database: sqlite3.Connection, run: int) -> dict[str, dict[str, Any]]:
    """What a run's rollouts made of each training task: episodes, attempts, successes, first and last iteration."""
    rows = database.execute(
        "SELECT t.task, t.family, t.tier, count(*) episodes, count(e.success) attempts, coalesce(sum(e.success), 0) successes, "
        "min(u.iteration) first, max(u.iteration) last FROM uses u JOIN episodes e ON e.source = u.source "
        "JOIN tasks t ON t.id = e.task WHERE u.run = ? AND u.kind = 'rollout' GROUP BY t.id",
        (run,),
    )
    return {row["task"]: {**dict(row), **rate_of(row["successes"], row["attempts"])} for row in rows}


def rate_of(successes: float, attempts: int) -> dict[str, Any]:
    """`rate` (None without attempts), and of its Beta posterior, as in curation, `posterior` (the mean) and `ends` (90%)."""
    alpha, beta = 1.0 + successes, 1.0 + attempts - successes
    ends = tuple(beta_quantile(alpha, beta, (1 + side * CONFIDENCE) / 2) for side in (-1, 1))
    return {"rate": successes / attempts if attempts else None, "posterior": alpha / (alpha + beta), "ends": ends}


def listed(stored: str) -> list[str]:
    """The words of a stored list."""
    return [each for each in stored.split(", ") if each]


def _conditions(values: Mapping[str, str]) -> tuple[str, list[Any]]:
    """Conditions in SQL with question marks, and what stands for these."""
    conditions: list[str] = []
    found: list[Any] = []
    for name, column in EQUAL.items():
        if values.get(name):
            conditions.append(f"{column} = ?")
            found.append(values[name])
    for name, condition in NUMBERS.items():
        text = values.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 10:
            conditions.append(condition)
            found += [int(text)] * condition.count("?")
    for name, condition, value in (
        ("tool", "instr(e.tools, ?) > 0", f"\n{values.get('tool', '')}\n"),
        ("flaw", "instr(', ' || e.flaws || ',', ?) > 0", f", {values.get('flaw', '')},"),
        ("reason", "instr(', ' || e.reasons || ',', ?) > 0", f", {values.get('reason', '')},"),
        ("family", "t.family = ?", values.get("family")),
        ("task", "t.task = ?", values.get("task")),
    ):
        if values.get(name):
            conditions.append(condition)
            found.append(value)
    return "".join(f" AND {condition}" for condition in conditions), found


def _use_of(database: sqlite3.Connection, source: int, runs: Sequence[int]) -> dict[str, Any]:
    only = f" AND u.run IN ({', '.join('?' for _ in runs)})" if runs else ""
    row = database.execute(
        "SELECT r.run, u.label, u.iteration, u.policy, u.split, u.kind, count(*) OVER () runs FROM uses u "
        f"JOIN runs r ON r.id = u.run WHERE u.source = ?{only} ORDER BY r.started DESC LIMIT 1",
        (source, *runs),
    ).fetchone()
    return dict(row) if row else {"run": "", "label": "", "iteration": None, "policy": "", "split": "", "kind": "", "runs": 0}


def _row(row: sqlite3.Row) -> dict[str, Any]:
    return {**dict(row), "tools": tool_names(row["tools"])}


def numbers_of(database: sqlite3.Connection, run_ids: Collection[str]) -> list[int]:
    """The numbers of some runs, as far as the index has them."""
    holes = ", ".join("?" for _ in run_ids)
    return [row[0] for row in database.execute(f"SELECT id FROM runs WHERE run IN ({holes})", list(run_ids))]


def pending_of(database: sqlite3.Connection, run: int) -> tuple[int, int]:
    """How many of a run's stored results are not read yet, and how many there are."""
    row = database.execute(
        "SELECT count(*) - count(s.episodes), count(*) FROM uses u JOIN sources s ON s.id = u.source WHERE u.run = ?", (run,)
    ).fetchone()
    return int(row[0]), int(row[1])


def task_named(database: sqlite3.Connection, name: str, runs: Collection[int]) -> list[dict[str, Any]]:
    """The task of that name, with the latest run that has played it; empty where there is none."""
    numbers = list(runs)
    only = f" AND u.run IN ({', '.join('?' for _ in numbers)})" if numbers else ""
    row = database.execute(
        "SELECT t.task, t.prompt, r.run FROM tasks t JOIN episodes e ON e.task = t.id JOIN uses u ON u.source = e.source "
        f"JOIN runs r ON r.id = u.run WHERE t.task = ?{only} ORDER BY r.started DESC LIMIT 1",
        (name, *numbers),
    ).fetchone()
    return [dict(row)] if row else []
