"""The output folder of incremental ingests: each commit replaces it as a whole or not at all.

The next version is built beside the folder, with links to the parts that stay, and renamed into its place. A kill leaves
the old version or the new one. Between the two renames the old one has another name; the next ingest renames it back.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError, InfrastructureError
from tracewheel.core.locks import hold
from tracewheel.core.out_folder import carry_hidden, check_out_folder
from tracewheel.core.store import PARTIAL, PREVIOUS, disk_errors, flush, remove
from tracewheel.traces.counts import Counts
from tracewheel.traces.hash_index import HashIndex
from tracewheel.traces.ingested_folder import (
    INDEXES,
    INGESTED,
    PLACES_FOLDER,
    QUARANTINE_FILE,
    REPORT_FILE,
    STATE_FILE,
    TRACES_FOLDER,
)
from tracewheel.traces.intake import StoredHashes
from tracewheel.traces.ledger import FULL, Ledger

STATE_VERSION = 2


@dataclass
class ArchiveState:
    """What an archive stores to add to itself: settings, files read, totals and hashes."""

    settings: str
    ledger: Ledger = field(default_factory=Ledger)
    totals: Counts = field(default_factory=Counts)
    known: StoredHashes = field(default_factory=StoredHashes)
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
        """Lock the folder for this process, and clean up after a killed one.

        Raises:
            DataError: it holds what no ingest has written.
            InfrastructureError: another process is writing to it.
        """
        lock = self.path.with_name(f".lock-{self.path.name}")
        with disk_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock.touch()
        with hold(lock) as held:
            if not held:
                raise InfrastructureError(f"{self.path}: another ingest is writing to it; wait for it")
            if self._previous.exists() and not self.path.exists():
                os.replace(self._previous, self.path)
            self._drop_previous()
            for leftover in self.path.parent.glob(f"{PARTIAL}{glob.escape(self.path.name)}-[0-9]*"):
                remove(leftover)
            check_out_folder(self.path, INGESTED, by="ingest")
            try:
                yield
            finally:
                remove(self._next)
                lock.unlink(missing_ok=True)

    def load(self, settings: str) -> ArchiveState:
        """The folder's state; an empty one when the folder does not exist.

        Args:
            settings: Digest of the settings that stored traces depend on.

        Raises:
            DataError: the folder is a profile's, or was made with other settings.
        """
        if not self.path.exists() or not (self.path / REPORT_FILE).exists():
            return ArchiveState(settings)
        file = self.path / STATE_FILE
        if not file.exists():
            raise DataError(f"{self.path}: exists and has no {STATE_FILE}; choose another --out, or replace it with --full")
        try:
            stored = json.loads(file.read_text())
            known = StoredHashes(*(HashIndex.load(self.path / f"{name}.hashes") for name in INDEXES))
            state = ArchiveState(
                stored["settings"],
                Ledger.from_record(stored["files"]),
                Counts.of_report(stored["totals"]),
                known,
                stored["parts"],
            )
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise DataError(f"{file}: cannot be read: {error}; {FULL}") from error
        if stored["version"] != STATE_VERSION:
            raise DataError(f"{self.path}: was ingested by an earlier version of Tracewheel; {FULL}, or choose another --out")
        if state.settings != settings:
            raise DataError(
                f"{self.path}: was ingested with other settings of ingest.redaction, ingest.readers or ingest.fields,"
                f" other code of a reader, another key, or before somebody was forgotten; {FULL},"
                " or choose another --out"
            )
        return state

    def begin(self, state: ArchiveState, *, keep: bool) -> tuple[Path, Path]:
        """Begin the folder's next version.

        Args:
            state: The current state.
            keep: Whether to keep the folder's contents.

        Returns:
            The Parquet file and the quarantine file to write.
        """
        remove(self._next)
        parts = self._next / TRACES_FOLDER
        parts.mkdir(parents=True)
        quarantine = self._next / QUARANTINE_FILE
        if keep and (self.path / STATE_FILE).exists():
            for part in sorted((self.path / TRACES_FOLDER).glob("part-*.parquet")):
                link_file(part, parts / part.name)
            places = sorted((self.path / PLACES_FOLDER).glob("part-*.parquet"))
            for part in places:
                (self._next / PLACES_FOLDER).mkdir(exist_ok=True)
                link_file(part, self._next / PLACES_FOLDER / part.name)
            shutil.copy2(self.path / QUARANTINE_FILE, quarantine)
        return parts / part_name(state.parts), quarantine

    def commit(self, state: ArchiveState, report: dict[str, Any]) -> None:
        """Replace the folder with the version that `begin` began."""
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
        if self.path.exists():
            os.replace(self.path, self._previous)
        os.replace(self._next, self.path)
        self._drop_previous()

    def _drop_previous(self) -> None:
        """Delete the folder's earlier version; hidden files in it go to the present one."""
        if self._previous.is_dir():
            carry_hidden(self._previous, self.path)
        remove(self._previous)


def part_name(number: int) -> str:
    """The file name of a part in `traces.parquet`."""
    return f"part-{number:05d}.parquet"


def write_report(folder: Path, report: dict[str, Any]) -> None:
    """Write the report into `folder`."""
    (folder / REPORT_FILE).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def link_file(file: Path, place: Path) -> None:
    """Link a file, whose bytes are never changed in place; copy it where the file system has no links."""
    try:
        os.link(file, place)
    except OSError:
        shutil.copy2(file, place)
