"""Slices of log files: bytes that were fixed before they are read, and are checked while they are read."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tracewheel.core.errors import DataError
from tracewheel.core.fingerprint import digest_file

BLOCK = 1 << 20


@dataclass(frozen=True)
class Slice:
    """Some bytes of a log file.

    Attributes:
        begin: Its first byte.
        end: The byte after its last one.
        line: The number of its first line.
        next_line: The number of the line at `end`.
        sha256: SHA-256 of its bytes.
    """

    begin: int
    end: int
    line: int
    next_line: int
    sha256: str


class SliceStream(io.RawIOBase):
    """The bytes of adjoining slices, and nothing after them, whatever is appended to the file meanwhile.

    Args:
        path: The file.
        slices: In order, each beginning where the one before ends.

    Raises:
        OSError: the file cannot be read.
    """

    def __init__(self, path: Path, slices: Sequence[Slice]) -> None:
        self._path, self._slices, self._place = path, list(slices), 0
        self._file = io.FileIO(path)
        self._file.seek(self._slices[0].begin)
        self._at, self._digest = self._slices[0].begin, hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read into a buffer.

        Raises:
            DataError: a slice has other bytes than when it was fixed.
        """
        if self._place == len(self._slices):
            return 0
        part = self._slices[self._place]
        data = self._file.read(min(len(buffer), part.end - self._at, BLOCK))
        self._digest.update(data)
        self._at += len(data)
        if not data or self._at == part.end:
            if self._at < part.end or self._digest.hexdigest() != part.sha256:
                raise changed(self._path, part)
            self._place, self._digest = self._place + 1, hashlib.sha256()
        buffer[: len(data)] = data
        return len(data)

    def check_rest(self) -> None:
        """Read what is left, to check it.

        Raises:
            DataError: a slice has other bytes than when it was fixed.
        """
        buffer = memoryview(bytearray(BLOCK))
        while self.readinto(buffer):
            pass

    def close(self) -> None:
        self._file.close()
        super().close()


def check_whole(path: Path, slices: Sequence[Slice]) -> None:
    """Check a file that a library has read as a whole.

    Raises:
        DataError: it is not the slice.
    """
    for part in slices:
        if path.stat().st_size != part.end or digest_file(path) != part.sha256:
            raise changed(path, part)


def runs_of(slices: Iterable[Slice]) -> list[list[Slice]]:
    """Slices in lists of those that adjoin, which are read in one go."""
    runs: list[list[Slice]] = []
    for part in slices:
        if runs and runs[-1][-1].end == part.begin:
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def changed(path: Path, part: Slice) -> DataError:
    """The error about a file that no longer holds a slice."""
    return DataError(
        f"{path}: bytes {part.begin} to {part.end} are not what they were when the run began: the file was truncated, replaced"
        " or rotated while it was read; start again, and the run reads the logs as they are now"
    )
