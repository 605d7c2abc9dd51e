"""Parses the bytes of a piece as JSON, under the rules of `strict_json`."""

from __future__ import annotations

import re
from typing import Any

from tracewheel.core.strict_json import parse_json
from tracewheel.traces.json_cutter import Piece
from tracewheel.traces.quarantine import InvalidRecord

BEGUN = re.compile(r"-|\.|t|tr|tru|f|fa|fal|fals|n|nu|nul|\\?u[0-9a-fA-F]{0,4}")


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


DETAILS = {
    "truncated": "the file ends before the value does",
    "not JSON": "a string without an end, or brackets that do not fit",
    "too large": "larger than a record may be; what is kept of it is its beginning",
    "expands too far": "the file expands to more than ingest.largest_expansion times its size; what came before was read",
    "Parquet damaged": "the file or this row is broken; what came before was read",
    "compression damaged": "the compressed file ends too early or is broken here; what came before was read",
}


def _ends_too_early(raw: bytes, error: ValueError) -> bool:
    """Whether the text is only incomplete: the parser failed at its end, or in an unterminated string."""
    position = getattr(error, "pos", -1)
    if position < 0:
        return False
    rest = raw.decode()[position:].rstrip()
    return not rest or "Unterminated string" in str(error) or bool(BEGUN.fullmatch(rest))
