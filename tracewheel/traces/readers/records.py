"""Reads one record with its reader: what cannot be read is quarantined, whatever goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson

from tracewheel.core.types import Trace
from tracewheel.traces.json_cutter import Piece
from tracewheel.traces.quarantine import InvalidRecord, Quarantined
from tracewheel.traces.readers.building import Place
from tracewheel.traces.readers.reader import Reader
from tracewheel.traces.readers.unread import check_trace

UNEXPECTED = (TypeError, ValueError, LookupError, AttributeError, RecursionError)


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
        return trace
    except InvalidRecord as error:
        return quarantined(piece, file, error)
    except UNEXPECTED as error:
        return quarantined(piece, file, _unexpected(reader, error))


def _unexpected(reader: Reader, error: Exception) -> InvalidRecord:
    return InvalidRecord("message unreadable", f"not as {reader.name} writes it: {type(error).__name__}: {error}")


def quarantined(piece: Piece, file: str, error: InvalidRecord) -> Quarantined:
    """The piece in quarantine."""
    return Quarantined(file, piece.line, error.reason, error.detail, piece.raw, piece.offset)
