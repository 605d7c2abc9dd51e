"""The folder that ingests write to, one after another: each adds to it as a whole or not at all.

A new state of the folder is made beside it, with links to the parts that stay, and takes its place by renaming. A kill
in between leaves the old state or the new one; between two renames, for a moment, the old one under another name,
which the next ingest gives back.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.store import PARTIAL, flush, remove
from tracewheel.traces.counts import Counts
from tracewheel.traces.hash_index import HashIndex
from tracewheel.traces.ingested_folder import QUARANTINE_FILE, REPORT_FILE, TRACES_FOLDER
from tracewheel.traces.intake import Known
from tracewheel.traces.ledger import FULL, Ledger

STATE_FILE, STATE_VERSION = "state.json", 1
INDEXES = ("contents", "ids", "span_traces")
PREVIOUS = ".previous-"


@dataclass
class State:
    """What the folder knows of its own making."""

    settings: str
    ledger: Ledger = field(default_factory=Ledger)
    totals: Counts = field(default_factory=Counts)
    known: Known = field(default_factory=Known)
    parts: int = 0


class Archive:
    """A folder of ingested traces.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path = path.resolve()
        self._previous = path.with_name(f"{PREVIOUS}{path.name}")
        self._next = path.with_name(f"{PARTIAL}{path.name}-{os.getpid()}")

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the folder for this process, and put right what a killed one left.

        Raises:
            InfrastructureError: another process is writing to it.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        name = self.path.with_name(f".lock-{self.path.name}")
        with name.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock.fileno()).st_ino != name.stat().st_ino:
                    raise BlockingIOError("its holder has just ended")
            except OSError as error:
                raise InfrastructureError(f"{self.path}: another ingest is writing to it; wait for it") from error
            if self._previous.exists() and not self.path.exists():
                os.replace(self._previous, self.path)
            remove(self._previous)
            for leftover in self.path.parent.glob(f"{PARTIAL}{self.path.name}-*"):
                remove(leftover)
            try:
                yield
            finally:
                remove(self._next)
                name.unlink(missing_ok=True)

    def load(self, settings: str) -> State:
        """The folder's state; a fresh one where there is no folder.

        Args:
            settings: What stored traces depend on beside the logs.

        Raises:
            DataError: the folder is not one of ingests, or was made with other settings.
        """
        if not self.path.exists() or not any(self.path.iterdir()):
            return State(settings)
        file = self.path / STATE_FILE
        if not file.exists():
            raise DataError(
                f"{self.path}: is there already and has no {STATE_FILE} to go on from; choose another --out, or --full"
            )
        try:
            stored = json.loads(file.read_text())
            known = Known(*(HashIndex.load(self.path / f"{name}.hashes") for name in INDEXES))
            state = State(
                stored["settings"],
                Ledger.from_record(stored["files"]),
                Counts.of_report(stored["totals"]),
                known,
                stored["parts"],
            )
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise DataError(f"{file}: cannot be read: {error}; {FULL}") from error
        if stored["version"] != STATE_VERSION or state.settings != settings:
            raise DataError(
                f"{self.path}: was ingested with other settings of ingest.redaction or another key; {FULL},"
                " or choose another --out"
            )
        return state

    def check_is_one(self) -> None:
        """See to it that the folder is one of ingests, or not there: what is not must not be replaced.

        Raises:
            DataError: it is something else.
        """
        if not self.path.exists():
            return
        names = {entry.name for entry in self.path.iterdir()} if self.path.is_dir() else {self.path.name}
        if names and not names >= {TRACES_FOLDER, QUARANTINE_FILE, REPORT_FILE}:
            raise DataError(f"{self.path}: is there already and no output of ingest; choose another --out")

    def begin(self, state: State, *, keep: bool) -> tuple[Path, Path]:
        """Begin the folder's next state.

        Args:
            state: The state to go on from.
            keep: Whether what is in the folder stays.

        Returns:
            The Parquet file and the quarantine file to write.
        """
        remove(self._next)
        parts = self._next / TRACES_FOLDER
        parts.mkdir(parents=True)
        quarantine = self._next / QUARANTINE_FILE
        if keep and self.path.exists():
            for part in sorted((self.path / TRACES_FOLDER).glob("part-*.parquet")):
                _link(part, parts / part.name)
            shutil.copy2(self.path / QUARANTINE_FILE, quarantine)
        return parts / part_name(state.parts), quarantine

    def commit(self, state: State, report: dict[str, Any]) -> None:
        """Make what was begun the folder."""
        write_report(self._next, report)
        for name, index in zip(INDEXES, (state.known.contents, state.known.ids, state.known.span_traces), strict=True):
            index.save(self._next / f"{name}.hashes")
        stored = {
            "version": STATE_VERSION,
            "settings": state.settings,
            "parts": state.parts,
            "totals": state.totals.report(),
            "files": state.ledger.to_record(),
        }
        (self._next / STATE_FILE).write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
        flush(self._next)
        remove(self._previous)
        if self.path.exists():
            os.replace(self.path, self._previous)
        os.replace(self._next, self.path)
        remove(self._previous)


def part_name(number: int) -> str:
    """The name of a part of `traces.parquet`."""
    return f"part-{number:05d}.parquet"


def write_report(folder: Path, report: dict[str, Any]) -> None:
    """Write the report into a folder of traces."""
    (folder / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _link(file: Path, place: Path) -> None:
    """The same file in another place; a copy where the disk has no links."""
    try:
        os.link(file, place)
    except OSError:
        shutil.copy2(file, place)
