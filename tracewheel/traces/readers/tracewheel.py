"""Reads Tracewheel's own records, as JSONL or Parquet: traces, and trajectories with tokens and log-probabilities.

A trajectory's reward is in another file, so its outcome is unknown here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tracewheel.core.files import read_batches
from tracewheel.core.types import Trace
from tracewheel.traces.json_cutter import Piece
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.building import (
    Place,
    RawTrace,
    build_trace,
    checked_tokens,
    list_field,
    object_field,
    reward_field,
    text_field,
)
from tracewheel.traces.readers.dialects import parsed
from tracewheel.traces.readers.reader import Reader, Signs
from tracewheel.traces.readers.tools import as_tools

FORMAT = "tracewheel"
OF_TRAJECTORY = {"token_ids", "action_mask", "logprobs", "stop_reason", "policy_version"}
OF_TRACE = {"source_file", "source_line", "outcome"}
KEPT = ("group", "policy_version", "stop_reason", "seed", "temperature", "forks", "final_state", "turns", "detail")
ROWS = 256


def recognises(value: Any) -> bool:
    """Whether this is a trajectory or a trace."""
    return isinstance(value, dict) and "messages" in value and (value.keys() >= OF_TRAJECTORY or value.keys() >= OF_TRACE)


def read(value: Any, place: Place) -> Trace:
    """The trace of one record.

    Raises:
        InvalidRecord: it cannot be read.
    """
    messages = parsed(value["messages"])
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
            info={key: parsed(value[key]) for key in KEPT if key in value},
        ),
    )


def _trace(value: dict[str, Any], messages: list[Any], place: Place) -> Trace:
    record = {key: parsed(part) for key, part in value.items()}
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


def parquet_pieces(path: Path) -> Iterator[Piece]:
    """The rows of a Parquet file as JSON objects; lines are row numbers, from 1. Damage gives a last piece."""
    import pyarrow

    row = 0
    try:
        for batch in read_batches(path, ROWS):
            for record in batch.to_pylist():
                row += 1
                yield Piece(json.dumps(record, ensure_ascii=False, default=str).encode("utf-8", "surrogatepass"), row, 0)
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        yield Piece(b"", row + 1, 0, damage="Parquet damaged", is_last=True)


READER = Reader(FORMAT, recognises, read, signs=Signs.NAMED)
