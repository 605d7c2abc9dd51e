"""Reads one record with its reader: what cannot be read is quarantined, whatever goes wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson

from tracewheel.core.strict_json import parse_json
from tracewheel.core.types import Trace
from tracewheel.traces.json_cutter import KEPT_OF_TOO_LARGE, Piece
from tracewheel.traces.quarantine import InvalidRecord, Quarantined
from tracewheel.traces.readers.reader import Place, Reader, SessionLine
from tracewheel.traces.readers.unread import check_beginning, check_trace
from tracewheel.traces.readers.warnings import with_warnings

UNEXPECTED = (TypeError, ValueError, LookupError, AttributeError, RecursionError)

BEGUN = re.compile(r"-|\.|t|tr|tru|f|fa|fal|fals|n|nu|nul|\\?u[0-9a-fA-F]{0,4}")


DETAILS = {
    "truncated": "the file ends before the value does",
    "not JSON": "a string without an end, or brackets that do not fit",
    "too large": "larger than a record may be; what is kept of it is its beginning",
    "expands too far": "the file expands to more than ingest.largest_expansion times its size; what came before was read",
    "Parquet damaged": "the file or this row is broken; what came before was read",
    "compression damaged": "the compressed file ends too early or is broken here; what came before was read",
}

LARGEST_SESSION = 256 << 20


def read_record(reader: Reader, value: Any, piece: Piece, file: str) -> Iterator[Trace | Quarantined]:
    """The traces of a record, each apart: one that cannot be read costs no other."""
    if reader.split is None:
        yield read_or_quarantine(reader, value, piece, file)
        return
    found = 0
    try:
        for part in reader.split(value):
            found += 1
            item = read_or_quarantine(reader, part.value, piece._replace(line=part.line or piece.line), file)
            yield replace(item, raw=orjson.dumps(part.original)) if isinstance(item, Quarantined) else item
    except InvalidRecord as error:
        yield quarantined(piece, file, error)
        return
    except UNEXPECTED as error:
        yield quarantined(piece, file, _unexpected(reader, error))
        return
    if not found:
        yield quarantined(piece, file, InvalidRecord("no messages", f"the {reader.name} log holds no conversation"))


def read_or_quarantine(reader: Reader, value: Any, piece: Piece, file: str) -> Trace | Quarantined:
    """Read a value. Even a reader's unexpected error only puts the record in quarantine."""
    try:
        trace = reader.read(value, Place(file, piece.line))
        check_trace(value, trace)
        check_beginning(value, trace)
        return with_warnings(trace, value)
    except InvalidRecord as error:
        return quarantined(piece, file, error)
    except UNEXPECTED as error:
        return quarantined(piece, file, _unexpected(reader, error))


def _unexpected(reader: Reader, error: Exception) -> InvalidRecord:
    return InvalidRecord("message unreadable", f"not as {reader.name} writes it: {type(error).__name__}: {error}")


def quarantined(piece: Piece, file: str, error: InvalidRecord) -> Quarantined:
    """The piece in quarantine."""
    return Quarantined(file, piece.line, error.reason, error.detail, piece.raw, piece.offset)


def parse_piece(piece: Piece) -> Any:
    """The value.

    Raises:
        InvalidRecord: the piece is damaged, not UTF-8, not JSON, or cut off at the end of the file.
    """
    if piece.damage:
        raise InvalidRecord(piece.damage, DETAILS[piece.damage])
    try:
        return parse_json(piece.raw.decode())
    except UnicodeDecodeError as error:
        cut_off = piece.is_last and error.end == len(piece.raw) and "unexpected end" in error.reason
        raise InvalidRecord("truncated" if cut_off else "not UTF-8", f"at byte {error.start}") from error
    except ValueError as error:
        reason = "truncated" if piece.is_last and _ends_too_early(piece.raw, error) else "not JSON"
        raise InvalidRecord(reason, str(error)) from error


def _ends_too_early(raw: bytes, error: ValueError) -> bool:
    """Whether the text is only incomplete: the parser failed at its end, or in an unterminated string."""
    position = getattr(error, "pos", -1)
    if position < 0:
        return False
    rest = raw.decode()[position:].rstrip()
    return not rest or "Unterminated string" in str(error) or bool(BEGUN.fullmatch(rest))


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
        others = [other for other in self._readers if other is not reader and other.recognises(lines[0].value)]
        first: list[Trace | Quarantined] = []
        for one in (reader, *others):
            items = list(read_record(one, lines, whole, file))
            if any(isinstance(item, Trace) for item in items):
                yield from items
                return
            first = first or items
        for item in first:
            assert isinstance(item, Quarantined)
            yield item if item.reason == "no messages" else replace(item, detail=f"looks like {reader.name}, but {item.detail}")


def _first_bytes(lines: list[SessionLine]) -> bytes:
    """The lines up to a size: kept of a session that has no conversation or is too large."""
    kept, size = [], 0
    for line in lines:
        kept.append(orjson.dumps(line.value))
        size += len(kept[-1])
        if size > KEPT_OF_TOO_LARGE:
            break
    return b"\n".join(kept)
