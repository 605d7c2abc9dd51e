"""Digests of episodes: for each stored result one small Parquet file with what lists and searches ask for.

A stored result never changes, so its digest is made once, when a page first asks for it, and read with DuckDB.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_batches, read_columns
from tracewheel.core.run_record import ENTRIES_FILE, LINEAGE_FILE, LOOP_FILE, SUMMARY_FILE, RunRecord
from tracewheel.core.store import PARTIAL, remove
from tracewheel.curation.curated_folder import TASKS_FILE
from tracewheel.dashboard.facts import digest_row, tools_of
from tracewheel.dashboard.library import Library, Place
from tracewheel.dashboard.sources import Source, sources_of
from tracewheel.report.finished_run import FinishedRun

# In the work folder. No run reads it; `tracewheel forget` deletes it whole.
FOLDER = ".dashboard"
VERSION = "v1"
BUDGET = 1.5  # seconds in which a request makes digests; the page asks again for those that are left
BATCH = 512
SIGNED = (LINEAGE_FILE, ENTRIES_FILE, LOOP_FILE, SUMMARY_FILE)
NEEDED = (
    *("id", "task_id", "sample", "policy_version", "turns", "messages", "stop_reason", "action_mask"),
    *("branches", "requests", "fault"),  # a file has these where it has something to say in them
)
UNREADABLE = (DataError, KeyError, TypeError, ValueError, AttributeError, IndexError, OSError)


@dataclass(frozen=True)
class Played:
    """The episodes of one run, as far as its record says where they are.

    Attributes:
        run: Its id.
        started: ISO 8601; "" where that is not known.
        environment: Its kind, for the tools.
        tasks: The file of its curated tasks; None where the store has lost it.
        sources: Its stored results with episodes, in order.
    """

    run: str
    started: str = ""
    environment: str = ""
    tasks: Path | None = None
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Shelf:
    """The digests of some runs.

    Attributes:
        store: The store of their work folder.
        uses: Each stored result of each run, the latest run first: its place in the run, and the file of its digest.
        tasks: The files of curated tasks.
        results: How many stored results the runs have; `read`: how many have a digest; `damaged`: those that cannot be read.
        is_whole: Whether everything can be found that will be.
    """

    store: Path
    uses: tuple[tuple[Played, int, Source, str], ...] = ()
    tasks: tuple[Path, ...] = ()
    results: int = 0
    read: int = 0
    damaged: int = 0
    is_whole: bool = True


class Digests:
    """The digests of a library's work folders."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._known: dict[tuple[str, str], tuple[tuple[Any, ...], Played]] = {}
        self._flaws: dict[Path, str] = {}
        self._elsewhere: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()

    def of(self, place: Place, runs: Collection[str] = (), seconds: float = BUDGET) -> Shelf:
        """The digests of some runs; those that are missing are made, as far as the time reaches.

        Args:
            place: The work folder.
            runs: Only these; all that are shown where it is empty.
            seconds: For what is missing; one digest more is made in any case.
        """
        with self._lock:
            end = time.monotonic() + seconds
            folder = self._folder(place)
            stored = set(os.listdir(place.path / "store")) if (place.path / "store").is_dir() else set()
            there = _kept(folder, stored)
            wanted = [run_id for run_id in place.run_ids() if not runs or run_id in runs]
            played: list[Played] = []
            late = False
            for run_id in sorted(wanted, key=lambda name: _changed(place.path / name), reverse=True):
                late = late or (bool(played) and time.monotonic() > end)
                if not late or (place.name, run_id) in self._known:
                    played.append(self._played(place, run_id))
            played.sort(key=lambda one: (one.started, one.run), reverse=True)
            uses, named = [], set()
            made = damaged = 0
            for one in played:
                for number, source in enumerate(one.sources):
                    if source.entry not in stored:
                        continue
                    file = folder / _name(source)
                    is_new = file.name not in named
                    named.add(file.name)
                    if is_new and file.name not in there and file not in self._flaws and (not made or time.monotonic() < end):
                        made += 1
                        if self._make(source, file, one.environment):
                            there.add(file.name)
                    if file.name in there:
                        uses.append((one, number, source, str(file)))
                    damaged += is_new and file in self._flaws
            read = len({file for _, _, _, file in uses})
            tasks = tuple(dict.fromkeys(one.tasks for one in played if one.tasks is not None))
            whole = len(played) == len(wanted) and read + damaged == len(named)
            return Shelf(place.path / "store", tuple(uses), tasks, len(named), read, damaged, whole)

    def _folder(self, place: Place) -> Path:
        """Where the digests of a work folder are: in it, or for a folder that cannot be written to, in a temporary one."""
        inside = place.path / FOLDER
        if os.access(inside if inside.is_dir() else place.path, os.W_OK):
            return inside
        self._elsewhere = self._elsewhere or tempfile.TemporaryDirectory(prefix="tracewheel-dashboard-")
        return Path(self._elsewhere.name) / place.name

    def _played(self, place: Place, run_id: str) -> Played:
        """What a run played, read again where its record has changed."""
        signs = _signs(place.path / run_id)
        known = self._known.get((place.name, run_id))
        if known is None or known[0] != signs:
            try:
                known = signs, _read(FinishedRun(RunRecord(place.path, run_id)))
            except UNREADABLE:  # a record that somebody damaged, or that is being written: the next request looks again
                return Played(run_id)
            self._known[place.name, run_id] = known
        return known[1]

    def _make(self, source: Source, file: Path, environment: str) -> bool:
        """Write one digest, whole or not at all; says whether it is there."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            scores = _scores(source.scores) if source.scores else {}
            tools = tools_of(environment)
            rows = [digest_row(row, scores.get(row["id"], {}), tools) for row in _episodes(source.trajectories)]
            table = pa.Table.from_pylist([row | {"number": number} for number, row in enumerate(rows)], schema=_schema())
        except UNREADABLE as flaw:
            self._flaws[file] = str(flaw)
            return False
        partial = file.with_name(f"{PARTIAL}{file.name}")
        with contextlib.suppress(OSError):  # somebody deleted the folder meanwhile: nothing is written
            pq.write_table(table, partial, compression="zstd")
            os.replace(partial, file)
            return True
        return False


def _schema() -> Any:
    import pyarrow as pa

    texts, whole = pa.list_(pa.string()), pa.int64()
    columns = {
        name: pa.string() for name in ("trajectory", "task", "family", "outcome", "fault", "detail", "stop", "blame", "words")
    }
    columns |= {"total": pa.float64(), "success": pa.float64(), "flaws": texts, "tools": texts, "reasons": texts}
    counts = ("number", "sample", "turns", "calls", "tokens", "generated", "oldest", "newest", "branches", "unmatched", "lost")
    return pa.schema([*columns.items(), *((name, whole) for name in counts)])


def _read(run: FinishedRun) -> Played:
    tasks = None
    with contextlib.suppress(*UNREADABLE):
        tasks = run.curated / TASKS_FILE
    kind = str((run.settings.get("environment") or {}).get("kind") or "")
    return Played(run.run_id, str(run.lineage.get("started") or ""), kind, tasks, tuple(sources_of(run)))


def _signs(folder: Path) -> tuple[Any, ...]:
    """What changes when a run gets another stored result."""
    found: list[Any] = []
    for name in SIGNED:
        try:
            state = os.stat(f"{folder}/{name}")  # of a thousand runs: a path of its own for each takes half the time
            found += [state.st_mtime_ns, state.st_size]
        except OSError:
            found.append(None)
    return tuple(found)


def _changed(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _name(source: Source) -> str:
    """Of a digest's file: another one where the scores came later."""
    scored = source.scores.parent.name if source.scores and not source.part else ""
    return f"{VERSION}.{'.'.join(word for word in (source.entry, source.part, scored) if word)}.parquet"


def _kept(folder: Path, stored: Collection[str]) -> set[str]:
    """The digests in a folder; those of results that the store has lost, and those of another version, are deleted."""
    found = set()
    for name in os.listdir(folder) if folder.is_dir() else ():
        version, _, rest = name.partition(".")
        if version == VERSION and rest.partition(".")[0] in stored:
            found.add(name)
        else:
            with contextlib.suppress(OSError):
                remove(folder / name)
    return found


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
    for batch in read_batches(file, BATCH, ["trajectory_id", "status", "total", "breakdown", "family"]):
        for row in batch.to_pylist():
            found[row["trajectory_id"]] = {**row, "breakdown": orjson.loads(row["breakdown"])}
    return found
