"""A queue on disk: records that wait to be delivered elsewhere, in order, each with its files.

`root/<number>/` is one record: `record.json` and the files it needs, which are hard links where the disk allows them. It is
written under a temporary name and renamed once it is on disk, so a kill leaves a whole record or none. A delivered record is
deleted. One folder for each record, rather than lines of one file, because then nothing is ever cut, rewritten or counted.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.store import PARTIAL, disk_errors, flush, link, remove, sync

RECORD_FILE, LOCK_FILE = "record.json", ".lock"
DAMAGED, DONE = "damaged-", ".done-"
SPOOL_FOLDER = "mlflow-spool"
DIGITS = 9


class Spool:
    """Records in the order in which they were put.

    Args:
        root: The folder; created by the first record.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._last = 0
        self._putting = threading.Lock()

    @classmethod
    def of(cls, work_dir: str | Path) -> Spool:
        """What waits for MLflow in a work folder."""
        return cls(Path(work_dir) / SPOOL_FOLDER)

    @property
    def lock(self) -> Path:
        """A file that whoever delivers holds."""
        with disk_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            (self.root / LOCK_FILE).touch()
        return self.root / LOCK_FILE

    def put(self, record: Mapping[str, Any], files: Mapping[str, Path] | None = None) -> Path:
        """Add a record; it is on disk when this returns.

        Args:
            record: JSON types.
            files: Name in the record's folder to a file or a folder.

        Returns:
            The record's folder.

        Raises:
            InfrastructureError: the disk is full or cannot be written to.
        """
        with self._putting, disk_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            partial = self.root / f"{PARTIAL}{os.getpid()}-{threading.get_ident()}"
            try:
                remove(partial)
                partial.mkdir()
                for name, source in (files or {}).items():
                    link(source, partial / name)
                (partial / RECORD_FILE).write_text(json.dumps(record))
                flush(partial)
                folder = self._place(partial)
                sync(self.root)
            finally:
                remove(partial)
        return folder

    def _place(self, partial: Path) -> Path:
        """Give the record the next number. Another process may take it first: a folder that is not empty is not replaced."""
        self._last = max([self._last, *(int(folder.name) for folder in self.waiting())])
        while True:
            self._last += 1
            folder = self.root / f"{self._last:0{DIGITS}d}"
            try:
                os.rename(partial, folder)
            except OSError:
                if not folder.is_dir():
                    raise
            else:
                return folder

    def waiting(self) -> list[Path]:
        """The folders of the records that wait, the oldest first."""
        if not self.root.is_dir():
            return []
        return sorted(folder for folder in self.root.iterdir() if folder.name.isdigit())

    def read(self, folder: Path) -> dict[str, Any]:
        """A record.

        Raises:
            DataError: it is damaged.
        """
        path = folder / RECORD_FILE
        try:
            found = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: not a record: {error}") from error
        if not isinstance(found, dict):
            raise DataError(f"{path}: not a record")
        return found

    def done(self, folder: Path) -> None:
        """Delete a record that was delivered."""
        gone = folder.with_name(f"{DONE}{folder.name}")
        with disk_errors(self.root):
            remove(gone)
            os.rename(folder, gone)  # at once, so that a kill leaves no half of a record
            remove(gone)

    def set_aside(self, folder: Path) -> Path:
        """Keep a damaged record under another name, out of the way of those behind it."""
        aside = folder.with_name(f"{DAMAGED}{folder.name}")
        with disk_errors(self.root):
            remove(aside)
            os.rename(folder, aside)
        return aside

    def tidy(self) -> None:
        """Delete what killed processes left; only for whoever holds the lock."""
        for leftover in self.root.glob(f"{DONE}*"):
            remove(leftover)
        for leftover in self.root.glob(f"{PARTIAL}*"):
            if not _is_alive(leftover):
                remove(leftover)


def _is_alive(partial: Path) -> bool:
    """Whether the process that writes a record still runs."""
    try:
        os.kill(int(partial.name.removeprefix(PARTIAL).split("-")[0]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
