"""The work folders and runs that the dashboard shows, by names that are safe in an address; the shipped runs among them."""

from __future__ import annotations

import hashlib
import re
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.run_record import CONFIG_FILE, ENTRIES_FILE, LINEAGE_FILE, LOOP_FILE, SUMMARY_FILE, RunRecord
from tracewheel.evaluation.gate import GATE_FILE
from tracewheel.report.finished_run import FinishedRun

RUN_ID = re.compile(r"[0-9a-f]{4,64}")
# Files of a record; what was read of a run holds while they stay as they are.
READ = (CONFIG_FILE, LINEAGE_FILE, ENTRIES_FILE, LOOP_FILE, GATE_FILE, SUMMARY_FILE)
MOST_RUNS = 12  # of which what was read is kept
ENTRY = re.compile(r"[a-z_]{2,40}-[0-9a-f]{8,64}")


class NotThere(DataError):
    """An address names something that does not exist."""


@dataclass(frozen=True)
class Place:
    """A work folder.

    Attributes:
        name: Its name in addresses.
        only: The runs that are shown; empty for all.
    """

    name: str
    path: Path
    only: frozenset[str] = frozenset()

    def run_ids(self) -> Iterator[str]:
        """The runs of the folder that are shown, in no order."""
        for file in self.path.glob(f"*/{LINEAGE_FILE}"):
            name = file.parent.name
            if RUN_ID.fullmatch(name) and (not self.only or name in self.only):
                yield name


class Library:
    """What the dashboard was pointed at.

    Args:
        folders: Work folders, and folders of runs. A work folder may be empty yet, but it must exist.
        ending: The summary of a run that is about to end, whose record has none yet.

    Raises:
        DataError: one of them is neither.
    """

    def __init__(self, folders: Sequence[Path], ending: Mapping[str, Any] | None = None) -> None:
        self.ending = dict(ending or {})
        chosen: dict[Path, set[str]] = {}
        for folder in folders:
            path = folder.resolve()
            if not path.is_dir():
                raise DataError(
                    f"{folder}: no such folder; give a work folder (work_dir, or --run-dir), or a run's folder in it"
                )
            if (path / LINEAGE_FILE).is_file():
                runs = chosen.setdefault(path.parent, {path.name})
                if runs:
                    runs.add(path.name)
            else:
                chosen[path] = set()  # the whole folder, whatever was named of it before
        named: dict[str, Place] = {}
        for path, only in chosen.items():
            name = _slug(path, taken=named)
            named[name] = Place(name, path, frozenset(only))
        self.places = named
        self._runs: dict[Path, tuple[tuple[tuple[int, int] | None, ...], FinishedRun]] = {}
        self._lock = threading.Lock()

    def place(self, name: str) -> Place:
        """A work folder by its name.

        Raises:
            NotThere: there is none of that name.
        """
        if name not in self.places:
            raise NotThere(f"no work folder {name!r}; there are {', '.join(self.places)}")
        return self.places[name]

    def run(self, place: str, run_id: str) -> FinishedRun:
        """A run by its address.

        Raises:
            NotThere: there is none, or it is not shown.
        """
        where = self.place(place)
        shown = RUN_ID.fullmatch(run_id) and (not where.only or run_id in where.only)
        if not shown or not (where.path / run_id / LINEAGE_FILE).is_file():
            raise NotThere(f"{place} has no run {run_id!r}")
        return self._kept(RunRecord(where.path, run_id))

    def _kept(self, record: RunRecord) -> FinishedRun:
        """What was read of a run, until a file of its record changes."""
        signs = tuple(sign(record.path / name) for name in READ)
        with self._lock:
            known = self._runs.pop(record.path, None)
            if known is None or known[0] != signs:
                known = signs, FinishedRun(record, self.ending if self.ending.get("run_id") == record.run_id else None)
            self._runs[record.path] = known
            while len(self._runs) > MOST_RUNS:
                del self._runs[next(iter(self._runs))]
            return known[1]

    def runs(self) -> Iterator[tuple[Place, str]]:
        """All runs that are shown, in no order."""
        for place in self.places.values():
            for run_id in place.run_ids():
                yield place, run_id


def entry_path(run: FinishedRun, entry: str) -> Path:
    """The folder of an entry that a run asked for.

    Raises:
        NotThere: the run asked for no such entry, or the store has lost it.
    """
    if not ENTRY.fullmatch(entry) or entry not in (run.record.needs() or ()):
        raise NotThere(f"run {run.run_id} has no stored result {entry!r}")
    path = run.store / entry
    if not path.is_dir():
        raise NotThere(f"{entry}: the store no longer has it (`tracewheel runs gc` frees what no kept run needs)")
    return path


def sign(path: Path) -> tuple[int, int] | None:
    """What changes when a file is written: its time and size; None without one."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _slug(path: Path, taken: dict[str, Place]) -> str:
    """A name for a folder in addresses: its own, with the beginning of a digest where that is taken."""
    name = re.sub(r"[^a-z0-9]+", "-", path.name.lower()).strip("-") or "runs"
    return name if name not in taken else f"{name}-{hashlib.sha256(str(path).encode()).hexdigest()[:6]}"


ARCHIVE = Path(__file__).parent / "demo_run.tar.xz"
NAME = "demo"


def unpack_demo(folder: Path) -> Path:
    """Unpack the shipped runs (two trainings, the second from the champion of the first; no weights).

    Args:
        folder: Where to; it need not exist.

    Returns:
        The work folder with the runs.
    """
    work = folder / NAME
    work.mkdir(parents=True, exist_ok=True)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(work, filter="data")
    return work
