"""Fields at paths that the user gives (`ingest.fields`), for any reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tracewheel.core.paths import JsonPath
from tracewheel.core.types import Trace
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.fields import NAMES, field_value
from tracewheel.traces.readers.reader import Reader


def given_fields(trace: Trace, record: Any, paths: Mapping[str, str]) -> Trace:
    """The trace with the fields of `ingest.fields`; what is not at its path stays as the reader found it.

    Args:
        trace: As read.
        record: The record, or the list of its parts, of which the first that has the path counts.
        paths: Field to path, or to `=` and a constant. A name that is no field of a trace goes to `info`.

    Raises:
        InvalidRecord: what is at a path is not such a field.
    """
    changes: dict[str, Any] = {}
    info = dict(trace.info)
    for field, path in paths.items():
        value = path[1:] if path.startswith("=") else _first(record, JsonPath(path))
        if value is None:
            continue
        if field not in NAMES:
            info[field] = value
            continue
        read = field_value(field, value)
        if read is None and field == "created":
            info["created"] = value
        elif read is None:
            raise InvalidRecord("field unreadable", f"ingest.fields, {field}: what is at '{path}' is {value!r:.60}")
        changes[field] = read
    return replace(trace, info=info, **changes)


def with_fields(reader: Reader, paths: Mapping[str, str] | None) -> Reader:
    """The reader, which then looks for fields at these paths; the same object without paths."""
    if not paths:
        return reader
    return replace(reader, read=lambda value, place: given_fields(reader.read(value, place), value, paths))


def _first(record: Any, path: JsonPath) -> Any:
    for part in record if isinstance(record, list) else [record]:
        if (value := path.get(part)) is not None:
            return value
    return None
