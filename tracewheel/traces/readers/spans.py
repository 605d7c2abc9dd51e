"""Spans of traces in any export: OTLP JSON, or the lists that the SDKs of several languages write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tracewheel.traces.readers.dialects import parsed

TRACE_KEYS = ("traceId", "trace_id", "traceID")
SPAN_KEYS = ("spanId", "span_id", "spanID")
PARENT_KEYS = ("parentSpanId", "parent_id", "parent_span_id", "parentSpanID")
START_KEYS = ("startTimeUnixNano", "start_time_unix_nano", "startTime", "start_time", "start_time_ns")
WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")
DEEPEST_PATH = 20


@dataclass(frozen=True)
class Span:
    """One span. `start` is in nanoseconds since 1970, 0 if not logged. Events are pairs of name and attributes.

    `annotations` are Phoenix's later evaluations of the span.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    start: int
    attributes: dict[str, Any]
    events: tuple[tuple[str, dict[str, Any]], ...]
    annotations: tuple[dict[str, Any], ...] = ()


def span_values(value: Any) -> list[Any]:
    """The spans in an OTLP envelope, unparsed; none in anything else."""
    found: list[Any] = []
    for resource in _list(value, "resourceSpans", "resource_spans"):
        for scope in _list(resource, "scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
            found += _list(scope, "spans")
    return found


def is_envelope(value: Any) -> bool:
    """Whether a value is an OTLP export of spans."""
    return isinstance(value, dict) and any(isinstance(value.get(key), list) for key in ("resourceSpans", "resource_spans"))


def is_span(value: Any) -> bool:
    """Whether a value is one span."""
    return isinstance(value, dict) and bool(_id(value, TRACE_KEYS)) and bool(_id(value, SPAN_KEYS)) and "name" in value


def read_span(value: dict[str, Any]) -> Span:
    """Parse a span from any export."""
    parent = _id(value, PARENT_KEYS)
    if parent is None and isinstance(value.get("parentSpanContext"), dict):
        parent = _id(value["parentSpanContext"], SPAN_KEYS)
    events = []
    for event in _list(value, "events"):
        if isinstance(event, dict):
            events.append((str(event.get("name", "")), attributes_of(event.get("attributes"))))
    return Span(
        trace_id=_id(value, TRACE_KEYS) or "",
        span_id=_id(value, SPAN_KEYS) or "",
        parent_id=parent,
        name=str(value.get("name", "")),
        start=nanoseconds(next((value[key] for key in START_KEYS if value.get(key) is not None), None)),
        attributes=attributes_of(value.get("attributes")) or _below(value, "attributes"),
        events=tuple(events),
        annotations=tuple(note for note in _list(value, "annotations") if isinstance(note, dict)),
    )


def _id(value: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    """An id from the span or its context."""
    for holder in (value, value.get("spanContext"), value.get("context")):
        if isinstance(holder, dict):
            for key in keys:
                if isinstance(holder.get(key), str) and holder[key]:
                    return str(holder[key])
    # Tables of spans have one column for each path.
    return next((str(value[f"context.{key}"]) for key in keys if isinstance(value.get(f"context.{key}"), str)), None)


def nanoseconds(value: Any) -> int:
    """A logged time in nanoseconds since 1970. The log has a number, its text, [seconds, nanoseconds], or ISO 8601."""
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, int) for part in value):
        return int(value[0]) * 1_000_000_000 + int(value[1])
    if isinstance(value, str) and not (value.isascii() and value.isdigit()):
        try:
            return int(datetime.fromisoformat(value).timestamp() * 1_000_000) * 1000
        except (ValueError, OverflowError):
            return 0
    if isinstance(value, str | int | float) and not isinstance(value, bool) and value:
        number = float(value)
        for largest, factor in ((1e11, 1e9), (1e14, 1e6), (1e17, 1e3)):
            if abs(number) < largest:
                return int(number * factor)
        return int(value) if abs(number) < 2**63 else 0
    return 0


def attributes_of(value: Any) -> dict[str, Any]:
    """Attributes by name, from an object or from OTLP's list of keys and typed values."""
    if isinstance(value, dict):
        return value
    found = {}
    for pair in value if isinstance(value, list) else []:
        if isinstance(pair, dict) and isinstance(pair.get("key"), str):
            found[pair["key"]] = _any_value(pair.get("value"))
    return found


def _any_value(value: Any, depth: int = 0) -> Any:
    if not isinstance(value, dict) or depth > 32:
        return value
    for key, inner in value.items():
        match key:
            case "intValue" | "int_value":
                return int(inner) if isinstance(inner, str) and WHOLE_NUMBER.fullmatch(inner) else inner
            case "arrayValue" | "array_value":
                return [_any_value(part, depth + 1) for part in _list(inner, "values")]
            case "kvlistValue" | "kvlist_value":
                pairs = [pair for pair in _list(inner, "values") if isinstance(pair, dict)]
                return {str(pair.get("key")): _any_value(pair.get("value"), depth + 1) for pair in pairs}
            case _:
                return inner
    return None


def _below(holder: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The values of keys below a path, without None, which marks a table's empty cells."""
    length = len(prefix) + 1
    return {key[length:]: value for key, value in holder.items() if key.startswith(f"{prefix}.") and value is not None}


def nested(attributes: dict[str, Any], prefix: str) -> list[Any]:
    """The list that was flattened into attributes such as `llm.input_messages.0.message.role`.

    The attribute named by the prefix itself may hold the list, or its JSON text.
    """
    whole = parsed(attributes.get(prefix))
    if isinstance(whole, list):
        return whole
    listed = _listed(unflattened(_below(attributes, prefix)))
    return listed if isinstance(listed, list) else []


def unflattened(flat: dict[str, Any]) -> dict[str, Any]:
    """The tree behind keys that are dotted paths."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        node = tree
        *parents, last = path.split(".", DEEPEST_PATH)
        for part in parents:
            inner = node.setdefault(part, {})
            if not isinstance(inner, dict):
                break
            node = inner
        else:
            node[last] = value
    return tree


def _listed(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if node and all(key.isdigit() and len(key) < 7 for key in node):
        return [_listed(node[key]) for key in sorted(node, key=int)]
    return {key: _listed(value) for key, value in node.items()}


def _list(holder: Any, *keys: str) -> list[Any]:
    for key in keys:
        if isinstance(holder, dict) and isinstance(holder.get(key), list):
            return list(holder[key])
    return []


def first_text(attributes: dict[str, Any], *keys: str) -> str | None:
    """The first of these attributes that is a non-empty text."""
    return next((attributes[key] for key in keys if isinstance(attributes.get(key), str) and attributes[key]), None)


def in_order(spans: list[Span]) -> Iterator[Span]:
    """The spans by start; of equal starts, a parent before its children."""
    by_id = {span.span_id: span for span in spans}

    def depth(span: Span) -> int:
        seen: set[str] = set()
        while span.parent_id in by_id and span.span_id not in seen:
            seen.add(span.span_id)
            span = by_id[str(span.parent_id)]
        return len(seen)

    yield from sorted(spans, key=lambda span: (span.start, depth(span)))
