"""Traces as Parquet: a folder of parts, one for each commit, which pandas reads as one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from tracewheel.core.types import Trace

if TYPE_CHECKING:
    import pyarrow

# A group is in memory as Python's texts, as Arrow's, and as what Parquet writes: some six times its size.
ROWS_PER_GROUP, BYTES_PER_GROUP = 10_000, 8 << 20
TEXTS = ("id", "messages", "tools", "environment", "session", "user", "created", "model")
NAMES = ("id", "session", "user", "created", "model", "source_file", "task")
PLAIN = (*NAMES, "outcome", "source_line", "format", "tools_inferred", "schema_version")
NOT_STORABLE = (TypeError, ValueError, RecursionError)  # what a trace raises that JSON or UTF-8 cannot hold
REQUIRED = {"id", "messages", "tools", "environment", "source_file", "format", "tokens", "info"}


def trace_schema() -> pyarrow.Schema:
    """The columns, in the order of the record's fields."""
    import pyarrow

    text = pyarrow.string()
    types = dict.fromkeys(TEXTS, text) | {"outcome": pyarrow.float64(), "source_file": text, "source_line": pyarrow.int64()}
    types |= {"format": text, "task": text, "tools_inferred": pyarrow.bool_(), "tokens": text, "info": text}
    types["schema_version"] = pyarrow.int64()
    required = REQUIRED | {"source_line", "tools_inferred", "schema_version"}
    return pyarrow.schema([pyarrow.field(name, kind, nullable=name not in required) for name, kind in types.items()])


class PartWriter:
    """Writes one part, also without rows, so that an ingest without traces still gives a table.

    Args:
        path: The file to write.
    """

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet

        self._schema = trace_schema()
        self._writer = pyarrow.parquet.ParquetWriter(path, self._schema, compression="zstd")
        self._columns: dict[str, list[Any]] = {name: [] for name in self._schema.names}
        self._bytes = 0
        self._tools: tuple[list[dict[str, Any]], str] | None = None

    def add(self, trace: Trace, messages: bytes) -> None:
        """Add a trace; `messages` is their JSON text, as `json_of` writes it.

        Raises:
            NOT_STORABLE: UTF-8 or JSON cannot hold a field of the trace. Nothing is added then.
        """
        row = {name: getattr(trace, name) for name in PLAIN}
        row["messages"] = messages  # as bytes: one wide character makes a text of Python's two or four times as large
        row["tools"] = self._tools_text(trace.tools)
        row["environment"] = "null" if trace.environment is None else json_of(trace.environment).decode()
        row["tokens"] = "null" if trace.tokens is None else json_of(trace.tokens).decode()
        row["info"] = json_of(trace.info).decode() if trace.info else "{}"
        for name in NAMES:
            if row[name] is not None:
                row[name].encode()  # fails for half of a surrogate pair
        self.add_row(row)

    def add_row(self, row: dict[str, Any]) -> None:
        """Add a row as it was stored."""
        for name, column in self._columns.items():
            column.append(row[name])
        self._bytes += sum(len(row[name]) for name in ("messages", "environment", "tokens", "info"))
        if len(self._columns["id"]) >= ROWS_PER_GROUP or self._bytes >= BYTES_PER_GROUP:
            self._write()

    def _tools_text(self, tools: list[dict[str, Any]]) -> str:
        """The tools as JSON text with the keys in the order of the log, as prompts are rendered from them."""
        if self._tools is None or self._tools[0] is not tools:
            text = json.dumps(tools, ensure_ascii=False)
            text.encode()
            self._tools = (tools, text)
        return self._tools[1]

    def _write(self) -> None:
        import pyarrow

        self._writer.write_table(pyarrow.table(self._columns, schema=self._schema))
        self._columns, self._bytes = {name: [] for name in self._columns}, 0

    def close(self) -> None:
        """Write the remaining rows and close the file."""
        if self._columns["id"]:
            self._write()
        self._writer.close()


def json_of(value: Any) -> bytes:
    """JSON text without spare whitespace, its keys in the order of the log: what an environment replies may follow it."""
    return orjson.dumps(value)


def hashed_json(value: Any) -> bytes:
    """JSON text with sorted keys, for hashing only: equal values give equal text."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
