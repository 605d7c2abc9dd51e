"""Gathers the lines of session files, which are one record each: the lines link to one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from tracewheel.core.types import Trace
from tracewheel.traces.json_cutter import KEPT_OF_TOO_LARGE, Piece
from tracewheel.traces.quarantine import InvalidRecord, Quarantined
from tracewheel.traces.readers.reader import Reader, SessionLine
from tracewheel.traces.readers.records import quarantined, read_record

LARGEST_SESSION = 256 << 20


class Sessions:
    """The session in the file that is being read. Only this one file's lines are in memory.

    Args:
        readers: The readers of session files.

    Attributes:
        in_file: Whether the file that was read last holds a session.
        ends: The first and the last piece of the session that was read.
    """

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = readers
        self.begin_file()

    def begin_file(self) -> None:
        """Forget the lines of the file before."""
        self.in_file = False
        self._reader: Reader | None = None
        self._lines: list[SessionLine] = []
        self._bytes = 0
        self.ends: tuple[Piece, Piece] | None = None

    def take(self, value: Any, piece: Piece) -> bool:
        """Take a line, if it is a session's. The first line decides the format."""
        reader = self._reader or next((reader for reader in self._readers if reader.recognises(value)), None)
        if reader is None or not (reader.recognises(value) or (self._reader and reader.continues and reader.continues(value))):
            return False
        self._reader, self.in_file = reader, True
        self._bytes += len(piece.raw)
        self.ends = (self.ends[0] if self.ends else piece, piece)
        if self._bytes <= LARGEST_SESSION:
            self._lines.append(SessionLine(piece.line, piece.offset, value))
        return True

    def read(self, file: str) -> Iterator[Trace | Quarantined]:
        """The conversations of the session, at the end of its file."""
        reader, lines, size = self._reader, self._lines, self._bytes
        self._reader, self._lines = None, []
        if reader is None:
            return
        whole = Piece(_first_bytes(lines), lines[0].line, lines[0].offset)
        if size > LARGEST_SESSION:
            yield quarantined(whole, file, InvalidRecord("too large", f"a session of {size} bytes; its beginning is kept"))
            return
        yield from read_record(reader, lines, whole, file)


def _first_bytes(lines: list[SessionLine]) -> bytes:
    """The lines up to a size: kept of a session that has no conversation or is too large."""
    kept, size = [], 0
    for line in lines:
        kept.append(orjson.dumps(line.value))
        size += len(kept[-1])
        if size > KEPT_OF_TOO_LARGE:
            break
    return b"\n".join(kept)
