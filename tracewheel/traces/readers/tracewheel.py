"""Reads Tracewheel's own records, as JSONL or Parquet: traces, and trajectories with tokens and log-probabilities.

A trajectory's reward is in another file, so its outcome is unknown here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.files import EXPANDS, ExpandsError, read_foreign_batches
from tracewheel.core.types import Trace
from tracewheel.traces.json_cutter import KEPT_OF_TOO_LARGE, Piece
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.building import build_trace, checked_tokens
from tracewheel.traces.readers.dialects import parsed_json
from tracewheel.traces.readers.fields import list_field, object_field, reward_field, text_field
from tracewheel.traces.readers.reader import Place, RawTrace, Reader, Signs
from tracewheel.traces.readers.tools import as_tools

if TYPE_CHECKING:
    import pyarrow

FORMAT = "tracewheel"
OF_TRAJECTORY = {"token_ids", "action_mask", "logprobs", "stop_reason", "policy_version"}
OF_TRACE = {"source_file", "source_line", "outcome"}
KEPT: tuple[str, ...] = ("group", "policy_version", "stop_reason", "seed", "temperature", "forks", "branches", "grammars")
KEPT += ("final_state", "turns", "detail")
ROWS = 256
_NO_RECORD = (ValueError, TypeError, OverflowError, RecursionError, MemoryError)


def recognises(value: Any) -> bool:
    """Whether this is a trajectory or a trace."""
    return isinstance(value, dict) and "messages" in value and (value.keys() >= OF_TRAJECTORY or value.keys() >= OF_TRACE)


def read(value: Any, place: Place) -> Trace:
    """The trace of one record.

    Raises:
        InvalidRecord: it cannot be read.
    """
    messages = parsed_json(value["messages"])
    if not isinstance(messages, list) or not messages:
        raise InvalidRecord("no messages", "'messages' is to be a list with at least one message")
    if value.keys() >= OF_TRACE:
        return _trace(value, messages, place)
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            messages,
            id=text_field(value, "id"),
            tools=as_tools(value.get("tools")),
            task=text_field(value, "task_id"),
            tokens=checked_tokens({name: value.get(name) for name in ("token_ids", "logprobs", "action_mask")}),
            info={key: parsed_json(value[key]) for key in KEPT if key in value},
        ),
    )


def _trace(value: dict[str, Any], messages: list[Any], place: Place) -> Trace:
    record = {key: parsed_json(part) for key, part in value.items()}
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            messages,
            id=text_field(value, "id"),
            tools=[] if record.get("tools_inferred") is True else as_tools(list_field(record, "tools")),
            environment=object_field(record, "environment") or None,
            session=text_field(value, "session"),
            user=text_field(value, "user"),
            created=text_field(value, "created"),
            model=text_field(value, "model"),
            outcome=reward_field(value, "outcome"),
            task=text_field(value, "task"),
            tokens=checked_tokens(record.get("tokens") if isinstance(record.get("tokens"), dict) else None),
            info=object_field(record, "info"),
        ),
    )


def parquet_pieces(path: Path, largest: int, expansion: int) -> Iterator[Piece]:
    """The rows of a Parquet file as JSON objects; lines are row numbers, from 1. Damage gives a last piece."""
    import pyarrow

    row = 0
    try:
        for batch in read_foreign_batches(path, ROWS, expansion):
            for piece in _row_pieces(batch, row, largest):
                row = piece.line
                yield piece
    except ExpandsError:
        yield Piece(b"", row + 1, 0, damage=EXPANDS, is_last=True)
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        yield Piece(b"", row + 1, 0, damage="Parquet damaged", is_last=True)


def _row_pieces(batch: pyarrow.RecordBatch, before: int, largest: int) -> Iterator[Piece]:
    """The rows of a batch; a row that Python or JSON cannot hold is damaged, and costs no other."""
    if batch.num_rows == 1 and batch.nbytes > largest:
        yield Piece(b"", before + 1, 0, damage="too large")
        return
    rows: Iterator[dict[str, Any]] | None
    try:
        rows = iter(batch.to_pylist())
    except _NO_RECORD:
        rows = None
    for at in range(batch.num_rows):
        try:
            record = batch.slice(at, 1).to_pylist()[0] if rows is None else next(rows)
            raw = json.dumps(record, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")
        except _NO_RECORD:
            yield Piece(b"", before + at + 1, 0, damage="Parquet damaged")
            continue
        is_large = len(raw) > largest
        yield Piece(raw[:KEPT_OF_TOO_LARGE] if is_large else raw, before + at + 1, 0, damage="too large" if is_large else "")


READERS = (Reader(FORMAT, recognises, read, signs=Signs.NAMED),)
