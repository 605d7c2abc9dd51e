"""Building the index: each stored result once, a batch of episodes in memory at a time."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_batches, read_columns
from tracewheel.core.locks import hold
from tracewheel.core.run_record import ENTRIES_FILE, LINEAGE_FILE, LOOP_FILE, SUMMARY_FILE, RunRecord
from tracewheel.core.store import FACTS, read_metadata
from tracewheel.curation.curated_folder import TASKS_FILE
from tracewheel.dashboard.index import schema
from tracewheel.dashboard.index.facts import facts_of, history_of, marks_of, tools_of, words_of
from tracewheel.dashboard.library import RUN_ID, Place
from tracewheel.dashboard.sources import SCORES, TRAJECTORIES, Source, sources_of
from tracewheel.dashboard.text import value_of

BATCH = 512
LISTED = 500  # stored results that are chosen at once
SIGNED = (LINEAGE_FILE, ENTRIES_FILE, LOOP_FILE, SUMMARY_FILE)
NEEDED = (
    *("id", "task_id", "group", "sample", "policy_version", "turns", "messages", "stop_reason", "action_mask"),
    *("branches", "requests", "fault"),  # a file has these where it has something to say in them
)
DROP_ABOVE = 0.5  # share of words of results that are gone, above which the index is made anew
UNREADABLE = (DataError, KeyError, TypeError, ValueError, AttributeError, IndexError, OSError)


def signs_of(folder: Path) -> str:
    """What changes when a run gets another stored result."""
    found = []
    for name in SIGNED:
        try:
            state = os.stat(f"{folder}/{name}")  # of a thousand runs: a path of its own for each takes half the time
            found.append(f"{state.st_mtime_ns}.{state.st_size}")
        except OSError:
            found.append("-")
    return " ".join(found)


class Indexer:
    """Brings the index of a work folder up to date.

    Args:
        place: The work folder, and which of its runs.
        folder: Where the index is.
    """

    def __init__(self, place: Place, folder: Path) -> None:
        self._place, self._folder = place, folder
        self._store = place.path / "store"

    def run(self) -> bool:
        """Index what is new, and drop what is gone.

        Returns:
            False where another process is at it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        lock = self._folder / schema.LOCK
        lock.touch()
        with hold(lock) as held:
            if not held:
                return False
            self._drop_lost()
            with contextlib.closing(schema.open_for_writing(self._folder)) as database:
                made = (self._folder / schema.FILE).stat().st_ino
                for run_id in self._place.run_ids():
                    self._register(database, run_id)
                for source in self._pending(database):
                    if not self._is_there(made):
                        return True  # somebody deleted the cache: nothing more is written
                    self._index(database, *source)
        return True

    def _is_there(self, made: int) -> bool:
        file = self._folder / schema.FILE
        return file.is_file() and file.stat().st_ino == made

    def _drop_lost(self) -> None:
        """Forget runs that are gone, and results that the store or every run has lost; too many, and the index is made anew."""
        with contextlib.closing(schema.open_for_writing(self._folder)) as database:
            for number, run_id in database.execute("SELECT id, run FROM runs").fetchall():
                if not (self._place.path / run_id / LINEAGE_FILE).is_file():
                    database.execute("DELETE FROM uses WHERE run = ?", (number,))
                    database.execute("DELETE FROM runs WHERE id = ?", (number,))
            rows = database.execute(
                "SELECT id, entry, scored, coalesce(episodes, 0), id IN (SELECT source FROM uses) FROM sources"
            ).fetchall()
            known = {path.name for path in self._store.iterdir()} if self._store.is_dir() else set()
            lost = [row for row in rows if row[1] not in known or (row[2] and row[2] not in known) or not row[4]]
            written = database.execute("SELECT coalesce(max(id), 0) FROM episodes").fetchone()[0]
            there = database.execute("SELECT count(*) FROM episodes").fetchone()[0] if lost else written
            anew = bool(lost) and there - sum(row[3] for row in lost) < (1 - DROP_ABOVE) * written
            if lost and not anew:
                database.execute("BEGIN")
                for source, *_ in lost:
                    database.execute("DELETE FROM episodes WHERE source = ?", (source,))
                    database.execute("DELETE FROM uses WHERE source = ?", (source,))
                    database.execute("DELETE FROM sources WHERE id = ?", (source,))
                database.execute("COMMIT")
        if anew:
            schema.drop(self._folder)

    def _register(self, database: sqlite3.Connection, run_id: str) -> None:
        folder = self._place.path / run_id
        signs = signs_of(folder)
        known = database.execute("SELECT id, signs FROM runs WHERE run = ?", (run_id,)).fetchone()
        if known and known[1] == signs:
            return
        run = FinishedRun(RunRecord(self._place.path, run_id))
        try:
            sources = sources_of(run)
            started, environment = str(run.lineage.get("started") or ""), _environment(run)
        except UNREADABLE:  # a record that somebody damaged, or that is being written: the next pass looks again
            sources, started, environment, signs = [], "", "", ""
        database.execute("BEGIN")
        with contextlib.suppress(*UNREADABLE):
            self._tasks(database, run)
        database.execute(
            "INSERT INTO runs (run, started, signs) VALUES (?, ?, ?) "
            "ON CONFLICT (run) DO UPDATE SET started = excluded.started, signs = excluded.signs",
            (run_id, started, signs),
        )
        number = database.execute("SELECT id FROM runs WHERE run = ?", (run_id,)).fetchone()[0]
        database.execute("DELETE FROM uses WHERE run = ?", (number,))
        for place, source in enumerate(sources):
            self._use(database, number, place, source, environment)
        database.execute("COMMIT")

    def _use(self, database: sqlite3.Connection, run: int, place: int, source: Source, environment: str) -> None:
        scored = source.scores.parent.name if source.scores and not source.part else ""
        names = (source.entry, source.part, scored)
        database.execute(
            "INSERT OR IGNORE INTO sources (entry, part, scored, finished) VALUES (?, ?, ?, ?)",
            (*names, self._finished(source.entry)),
        )
        number = database.execute("SELECT id FROM sources WHERE (entry, part, scored) = (?, ?, ?)", names).fetchone()[0]
        values = (source.kind, source.label, source.iteration, source.policy, source.split, environment)
        database.execute("INSERT OR REPLACE INTO uses VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (run, number, place, *values))

    def _finished(self, entry: str) -> float | None:
        with contextlib.suppress(DataError, OSError, KeyError):
            found: float | None = read_metadata(self._store / FACTS / f"{entry}.json").get("finished")
            return found
        return None

    def _tasks(self, database: sqlite3.Connection, run: FinishedRun) -> None:
        """The tasks of a run's curation, unless another run brought them already."""
        file = run.curated / TASKS_FILE
        name = run.curated.name
        if database.execute("SELECT 1 FROM curations WHERE entry = ?", (name,)).fetchone():
            return
        for batch in read_batches(file, BATCH, ["id", "family", "tier", "prompt", "split"]):
            for row in batch.to_pylist():
                task = _task_number(database, row["id"])
                database.execute(
                    "UPDATE tasks SET family = ?, tier = ?, prompt = ? WHERE id = ?",
                    (row["family"], row["tier"], _sound(row["prompt"])[:2000], task),
                )
                database.execute("INSERT OR IGNORE INTO sides VALUES (?, ?, ?)", (task, row["split"], name))
        database.execute("INSERT INTO curations VALUES (?)", (name,))

    def _pending(self, database: sqlite3.Connection) -> Iterator[tuple[int, str, str, str, str]]:
        """The results that are not read yet: those of the run that somebody looks at first, then the latest."""
        while True:
            first = self._first()
            rows = database.execute(
                "SELECT s.id, s.entry, s.part, s.scored, max(u.environment) FROM sources s JOIN uses u ON u.source = s.id "
                "JOIN runs r ON r.id = u.run WHERE s.episodes IS NULL GROUP BY s.id "
                "ORDER BY max(r.run = ?) DESC, s.finished DESC, s.id LIMIT ?",
                (first, LISTED),
            ).fetchall()
            if not rows:
                return
            for row in rows:
                yield row
                if self._first() != first:
                    break

    def _first(self) -> str:
        file = self._folder / schema.FIRST
        wanted = file.read_text(encoding="ascii", errors="replace")[:64] if file.is_file() else ""
        return wanted if RUN_ID.fullmatch(wanted) else ""

    def _index(self, database: sqlite3.Connection, source: int, entry: str, part: str, scored: str, environment: str) -> None:
        """One stored result, whole or not at all."""
        count, flaw = 0, ""
        database.execute("BEGIN")
        try:
            scores = _scores(self._store / (scored or entry) / part / SCORES) if scored or part else {}
            for row in _episodes(self._store / entry / part / TRAJECTORIES):
                _add(database, source, row, scores.get(row["id"], {}), tools_of(environment))
                count += 1
        except UNREADABLE as error:
            database.execute("ROLLBACK")
            database.execute("BEGIN")
            count, flaw = 0, str(error)[:500]
        database.execute("UPDATE sources SET episodes = ?, flaw = ? WHERE id = ?", (count, flaw, source))
        database.execute("COMMIT")


def _add(
    database: sqlite3.Connection,
    source: int,
    row: Mapping[str, Any],
    score: Mapping[str, Any],
    tools: Sequence[Mapping[str, Any]],
) -> None:
    messages, turns, stop = value_of(row["messages"]), value_of(row["turns"]), str(row["stop_reason"])
    facts, history = facts_of(messages, turns, stop, score, tools), history_of(row)
    versions = [turn["policy_version"] for turn in turns] or [row["policy_version"]]
    group = None if row["group"] == row["task_id"] else row["group"]
    places = (source, _task_number(database, row["task_id"]), row["id"], group, row["sample"])
    values = (
        facts.outcome,
        facts.total,
        facts.success,
        facts.fault,
        _sound(facts.detail),
        facts.flaws,
        stop,
        _sound(facts.tools),
    )
    lengths = (len(turns), facts.calls, row["tokens"], row["generated"], min(versions), max(versions))
    made = database.execute(
        "INSERT INTO episodes (source, task, trajectory, grp, sample, outcome, total, success, fault, detail, flaws, stop, "
        "tools, turns, calls, tokens, generated, oldest, newest, blame, branches, reasons, unmatched, lost) "
        f"VALUES ({', '.join('?' * 24)})",
        (*places, *values, *lengths, *(_sound(each) if isinstance(each, str) else each for each in history.stored)),
    )
    words = _sound(words_of([*messages, *history.others_than(messages)]))
    marks = marks_of(facts, stop, history)
    database.execute("INSERT INTO words (rowid, text, marks) VALUES (?, ?, ?)", (made.lastrowid, words, marks))


def _episodes(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file of trajectories, with the number of tokens instead of the tokens."""
    import pyarrow.compute as compute

    there = read_columns(file)
    for batch in read_batches(file, BATCH, [name for name in NEEDED if name in there]):
        masks = batch.column("action_mask")
        lengths = compute.list_value_length(masks).to_pylist()
        sums = [int(each.values.to_numpy().sum()) if each.is_valid and len(each.values) else 0 for each in masks]
        rest = batch.select([name for name in batch.schema.names if name != "action_mask"]).to_pylist()
        for row, length, generated in zip(rest, lengths, sums, strict=True):
            yield {**row, "tokens": length, "generated": generated}


def _scores(file: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for batch in read_batches(file, BATCH, ["trajectory_id", "status", "total", "breakdown"]):
        for row in batch.to_pylist():
            found[row["trajectory_id"]] = {**row, "breakdown": orjson.loads(row["breakdown"])}
    return found


def _task_number(database: sqlite3.Connection, task: str) -> int:
    row = database.execute("SELECT id FROM tasks WHERE task = ?", (task,)).fetchone()
    if row:
        return int(row[0])
    return int(database.execute("INSERT INTO tasks (task) VALUES (?)", (task,)).lastrowid or 0)


def _environment(run: FinishedRun) -> str:
    return str((run.settings.get("environment") or {}).get("kind") or "")


def _sound(text: str) -> str:
    """Text that SQLite can hold: without halves of pairs and zero bytes."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")
