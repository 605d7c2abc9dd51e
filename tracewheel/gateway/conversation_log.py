"""The log of served conversations: JSON lines in Tracewheel's own format, which `tracewheel ingest` reads.

A conversation is one line, written and flushed to the disk when it ends: a kill loses none that has ended. A file that has
grown to its size is left, and another begun; each process begins a file of its own, so none is ever written by two servers.
Files are their owner's alone, and so is a folder that is made for them. `tracewheel forget` replaces a file while it holds the
lock of the folder; a server that finds its file replaced begins another.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracewheel.core import clock
from tracewheel.core.errors import DataError
from tracewheel.core.locks import hold

SERVED_FOLDER = Path("serving") / "logs"  # in the work folder
LARGEST = 64 << 20  # bytes of a file


class ConversationLog:
    """Appends records to files in a folder.

    Args:
        folder: Made if it is not there.
        name: What file names begin with.
        largest: Bytes after which another file is begun.
        forgotten: Says of a user and a session whether they were forgotten; of them nothing is written.

    Raises:
        DataError: the folder cannot be made.
    """

    def __init__(
        self,
        folder: Path,
        name: str = "conversations",
        largest: int = LARGEST,
        forgotten: Callable[[str | None, str | None], bool] = lambda user, session: False,
    ) -> None:
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{folder}: cannot be made a folder for logs ({error.strerror}); name another") from error
        self._folder, self._name, self._largest = folder, name, largest
        self._forgotten, self._lock = forgotten, threading.Lock()
        self._file: int | None = None
        self._size = self._number = 0

    def write(self, record: dict[str, Any]) -> None:
        """Append one record, and wait until it is on the disk."""
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        with self._lock, hold(self._folder, wait=True):
            if self._forgotten(record.get("user"), record.get("session")):
                return
            if (
                self._file is None
                or not os.fstat(self._file).st_nlink
                or (self._size and self._size + len(line) > self._largest)
            ):
                self._begin()
            assert self._file is not None
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
            self._size += len(line)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _begin(self) -> None:
        if self._file is not None:
            os.close(self._file)
        while True:
            self._number += 1
            stamp = clock.now().strftime("%Y%m%dT%H%M%SZ")
            path = self._folder / f"{self._name}-{stamp}-{os.getpid()}-{self._number:04d}.jsonl"
            try:
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
                break
            except FileExistsError:
                continue
        self._size = 0
        folder = os.open(self._folder, os.O_RDONLY)  # its new entry, too
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
