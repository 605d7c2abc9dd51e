"""Log files as streams of bytes, compressed or not. A damaged archive ends early; it does not raise."""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tracewheel.core.errors import DataError
from tracewheel.core.files import EXPANDS, LARGEST_EXPANSION, most_expanded
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


BUFFER = 1 << 20
GZIP, ZSTANDARD = (".gz",), (".zst", ".zstd")


def is_compressed(path: Path) -> bool:
    """Whether a file is compressed, by its suffix."""
    return path.suffix.lower() in GZIP + ZSTANDARD


class ByteStream:
    """The uncompressed bytes of a file.

    Attributes:
        damage: What is wrong with the compression, once reading has reached it; else empty.
    """

    def __init__(self, path: Path, start: int = 0, slices: Sequence[Slice] = (), expansion: int = LARGEST_EXPANSION) -> None:
        """Open a file.

        Args:
            path: The file.
            start: The byte to begin at, of a file that is not compressed.
            slices: Read these, and check them; by default everything.
            expansion: A compressed file ends, damaged, where it has expanded to more than so many times its size.

        Raises:
            OSError: it cannot be read.
        """
        suffix = path.suffix.lower()
        self.damage = ""
        self._slices = SliceStream(path, slices) if slices else None
        source: io.RawIOBase = self._slices or io.FileIO(path)
        if suffix not in GZIP + ZSTANDARD:
            self._file = io.BufferedReader(source, BUFFER)
            if start and not slices:
                self._file.seek(start)
            return
        stored: io.BufferedReader = io.BufferedReader(source, BUFFER)
        read = _Gunzip(stored).read if suffix in GZIP else _open_zstandard(stored)
        self._file = io.BufferedReader(_Lenient(read, self._note, most_expanded(path, expansion)), BUFFER)

    def _note(self, damage: str) -> None:
        self.damage = damage

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; none at the end."""
        return self._file.read(size)

    def readline(self, limit: int) -> bytes:
        """The bytes up to and with the next line end, but no more than `limit`; none at the end."""
        return self._file.readline(limit)

    def close(self) -> None:
        """Close the file, without a look at what was not read."""
        self._file.close()

    def __enter__(self) -> ByteStream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._slices and kind is None:
            self._slices.check_rest()
        self._file.close()


class _Lenient(io.RawIOBase):
    """Turns a decompressor's errors into the end of the stream. Reads in small steps, as an error loses the step it is in."""

    STEP = 1 << 14

    def __init__(self, read: Callable[[int], bytes], note: Callable[[str], None], left: int) -> None:
        self._read, self._note, self._left, self._ended = read, note, left, False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._ended:
            return 0
        try:
            data = self._read(min(len(buffer), self.STEP))
        except (EOFError, OSError, zlib.error) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            self._note(str(error))
            data = b""
        self._left -= len(data)
        if self._left < 0:
            self._note(EXPANDS)
            data = b""
        self._ended = not data
        buffer[: len(data)] = data
        return len(data)


class _Gunzip:
    """The members of a gzip file, one after the other. Unlike `gzip`, it gives every byte before the damage."""

    BLOCK = 1 << 14  # what is left of it is copied at each step, and for each member

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self._member = zlib.decompressobj(wbits=31)
        self._waiting, self._started = b"", False

    def read(self, size: int) -> bytes:
        while True:
            if self._member.eof:
                self._waiting = self._member.unused_data
                self._member = zlib.decompressobj(wbits=31)
            if not self._waiting:
                self._waiting = self._file.read(self.BLOCK)
                if not self._waiting:
                    if self._started:
                        raise EOFError("the compressed file ends too early")
                    return b""
            data = self._member.decompress(self._waiting, size)
            self._waiting = self._member.unconsumed_tail
            self._started = not self._member.eof
            if data:
                return data


def _open_zstandard(file: io.BufferedReader) -> Callable[[int], bytes]:
    import pyarrow

    read: Callable[[int], bytes] = pyarrow.input_stream(file, compression="zstd").read
    return read
