"""The index beside the dashboard: its file, the process of its own that builds it, and how far that is."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tracewheel.core.processes import end_with_parent
from tracewheel.dashboard.index import schema
from tracewheel.dashboard.index.build import Indexer, signs_of
from tracewheel.dashboard.library import Library, Place

LOOKS_EVERY = 2.0


@dataclass(frozen=True)
class Progress:
    """How far an index is: stored results, and the episodes that can be found."""

    results: int = 0
    read: int = 0
    episodes: int = 0
    damaged: int = 0
    is_building: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether everything can be found."""
        return not self.is_building and self.read == self.results

    def __add__(self, other: Progress) -> Progress:
        return Progress(
            self.results + other.results,
            self.read + other.read,
            self.episodes + other.episodes,
            self.damaged + other.damaged,
            self.is_building or other.is_building,
        )


class Indexes:
    """The indexes of a library's work folders.

    Args:
        library: What is shown.
        builds: Whether processes are started; without, the indexes stay as they are.
    """

    def __init__(self, library: Library, *, builds: bool = True) -> None:
        self.library, self._builds = library, builds
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._looking: dict[str, threading.Thread] = {}
        self._looked: dict[str, float] = {}
        self._elsewhere: tempfile.TemporaryDirectory[str] | None = None
        self._lock = threading.RLock()

    def folder(self, place: Place) -> Path:
        """Where the index of a work folder is: in it, or for a folder that cannot be written to, in a temporary one."""
        inside = place.path / schema.FOLDER
        if inside.is_dir() or os.access(place.path, os.W_OK):
            return inside
        with self._lock:
            self._elsewhere = self._elsewhere or tempfile.TemporaryDirectory(prefix="tracewheel-dashboard-")
            return Path(self._elsewhere.name) / place.name

    def fresh(self, place: Place, first: str = "") -> Progress:
        """Start what brings an index up to date where runs have changed, and say how far it is.

        Args:
            place: The work folder.
            first: The run that somebody looks at: its results are read before all others.
        """
        if self._builds:
            self._start(place, first)
        return progress_of(self.folder(place), is_building=self._is_building(place))

    @contextlib.contextmanager
    def reading(self, place: Place) -> Iterator[sqlite3.Connection | None]:
        """A connection to an index, or None where there is none yet."""
        database = schema.open_for_reading(self.folder(place))
        try:
            yield database
        finally:
            if database is not None:
                database.close()

    def _start(self, place: Place, first: str) -> None:
        """Look in the background whether runs have changed, and build where they have: no page waits for either."""
        folder = self.folder(place)
        with self._lock:
            process, looking = self._processes.get(place.name), self._looking.get(place.name)
            if process is not None and process.poll() is None:
                _put_first(folder, first)
                return
            if looking is not None and looking.is_alive():
                return
            if time.monotonic() - self._looked.get(place.name, -LOOKS_EVERY) < LOOKS_EVERY:
                return
            self._looked[place.name] = time.monotonic()
            looking = threading.Thread(target=self._build, args=(place, folder, first), name="index", daemon=True)
            self._looking[place.name] = looking
            looking.start()

    def _build(self, place: Place, folder: Path, first: str) -> None:
        if is_current(place, folder):
            return
        program = [sys.executable, "-m", "tracewheel.dashboard.index.process"]
        words = [str(place.path), str(folder), str(os.getpid()), *sorted(place.only)]
        process = subprocess.Popen([*program, *words], stdin=subprocess.DEVNULL)
        with self._lock:
            self._processes[place.name] = process
        _put_first(folder, first)

    def _is_building(self, place: Place) -> bool:
        with self._lock:
            process, looking = self._processes.get(place.name), self._looking.get(place.name)
        if process is not None and process.poll() is None:
            return True
        return looking is not None and looking.is_alive() and not (self.folder(place) / schema.FILE).is_file()


def is_current(place: Place, folder: Path) -> bool:
    """Whether an index knows all results of the runs as they are now, and has read them."""
    with contextlib.suppress(sqlite3.Error):
        database = schema.open_for_reading(folder)
        if database is None:
            return False
        with contextlib.closing(database):
            known = dict(database.execute("SELECT run, signs FROM runs").fetchall())
            pending = database.execute("SELECT 1 FROM sources WHERE episodes IS NULL LIMIT 1").fetchone()
        run_ids = set(place.run_ids())
        if pending is not None or not (place.only or known.keys() <= run_ids):
            return False
        return all(known.get(run_id) == signs_of(place.path / run_id) for run_id in run_ids)
    return False


def progress_of(folder: Path, *, is_building: bool) -> Progress:
    """How far an index is."""
    with contextlib.suppress(sqlite3.Error):
        database = schema.open_for_reading(folder)
        if database is not None:
            with contextlib.closing(database):
                row = database.execute(
                    "SELECT count(*), count(episodes), coalesce(sum(episodes), 0), sum(flaw <> '') FROM sources"
                ).fetchone()
            return Progress(row[0], row[1], row[2], row[3] or 0, is_building)
    return Progress(is_building=is_building)


def _put_first(folder: Path, run_id: str) -> None:
    if run_id and folder.is_dir():
        with contextlib.suppress(OSError):
            (folder / schema.FIRST).write_text(run_id, encoding="ascii")


def main(words: list[str]) -> None:
    """The program of the process: work folder, folder of the index, process id of the dashboard, runs (default: all)."""
    path, folder, parent, *only = words
    end_with_parent(int(parent))
    os.nice(5)
    Indexer(Place("", Path(path), frozenset(only)), Path(folder)).run()


if __name__ == "__main__":
    main(sys.argv[1:])
