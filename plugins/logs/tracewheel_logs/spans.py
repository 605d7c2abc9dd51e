"""Spans of traces in any export, OTLP JSON or the lists that the SDKs of several languages write, and their conversations.

Each export is the parts of as many groups as it has traces: a trace's spans may lie in several records and files.

Instrumentations may keep messages out of spans and in log records of events (`gen_ai.client.inference.operation.details`, or
one for each message). A record counts as an event of its span, or as a span where that was not logged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import orjson

from tracewheel import (
    InvalidRecord,
    Place,
    RawTrace,
    Reader,
    Signs,
    Trace,
    build_trace,
    content_hash,
    ending,
    nanoseconds,
    object_field,
    parsed_json,
)
from tracewheel_logs.model_calls import ModelCall, ToolRun, join_calls
from tracewheel_logs.scores import MODEL, LoggedScore, judge_of, outcome_of, scores_info
from tracewheel_logs.values import failed_by, time_text

TRACE_KEYS = ("traceId", "trace_id", "traceID")
SPAN_KEYS = ("spanId", "span_id", "spanID")
PARENT_KEYS = ("parentSpanId", "parent_id", "parent_span_id", "parentSpanID")
RECORD_TIME_KEYS = ("timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "observed_time_unix_nano", "timestamp")
START_KEYS = ("startTimeUnixNano", "start_time_unix_nano", "startTime", "start_time", "start_time_ns")
ENVELOPE_KEYS = ("resourceSpans", "resource_spans", "resourceLogs", "resource_logs")
WHOLE_NUMBER = re.compile(r"-?[0-9]{1,19}")


@dataclass(frozen=True)
class Span:
    """One span. `start` is in nanoseconds since 1970, 0 if not logged. Events are pairs of name and attributes.

    `annotations` are Phoenix's later evaluations of the span. `ended` is the mark of a call of a model that was cut or failed,
    by the span's attributes and status, "" of any other (`endings`).
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    start: int
    attributes: dict[str, Any]
    events: tuple[tuple[str, dict[str, Any]], ...]
    annotations: tuple[dict[str, Any], ...] = ()
    ended: str = ""


def span_values(value: Any) -> list[Any]:
    """The spans, and the log records of GenAI events, in an OTLP envelope, unparsed; none in anything else."""
    found: list[Any] = []
    for resource in _list(value, "resourceSpans", "resource_spans"):
        for scope in _list(resource, "scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
            found += _list(scope, "spans")
    for resource in _list(value, "resourceLogs", "resource_logs"):
        for scope in _list(resource, "scopeLogs", "scope_logs"):
            found += filter(is_event, _list(scope, "logRecords", "log_records"))
    return found


def _is_envelope(value: Any) -> bool:
    """Whether a value is an OTLP export of spans or log records."""
    return isinstance(value, dict) and any(isinstance(value.get(key), list) for key in ENVELOPE_KEYS)


def _is_one(value: Any) -> bool:
    """Whether a value is a span or the record of an event in one."""
    return is_span(value) or is_event(value)


def _is_exported(value: Any) -> bool:
    """Whether a value is a span, the record of an event in one, or an export of them."""
    return _is_one(value) or _is_envelope(value)


def is_span(value: Any) -> bool:
    """Whether a value is one span."""
    return isinstance(value, dict) and bool(_id(value, TRACE_KEYS)) and bool(_id(value, SPAN_KEYS)) and "name" in value


def is_event(value: Any) -> bool:
    """Whether a value is the log record of a GenAI event in a span."""
    if not isinstance(value, dict) or not (_id(value, TRACE_KEYS) and _id(value, SPAN_KEYS)):
        return False
    return _event_name(value).startswith("gen_ai.")


def _event_name(record: dict[str, Any]) -> str:
    named = first_text(record, "eventName", "event_name")
    return named or first_text(attributes_of(record.get("attributes")), "event.name") or ""


def read_spans(values: list[dict[str, Any]]) -> list[Span]:
    """The spans of a trace in order, with the events that were logged in them as records; what was sent twice counts once."""
    values = list({orjson.dumps(value, option=orjson.OPT_SORT_KEYS): value for value in values}.values())
    records: dict[str, list[Span]] = {}
    for value in filter(is_event, values):
        record = _read_record(value)
        records.setdefault(record.span_id, []).append(record)
    spans = []
    for span in (read_span(value) for value in values if not is_event(value)):
        events = [event for record in _in_time(records.pop(span.span_id, [])) for event in record.events]
        spans.append(replace(span, events=(*span.events, *events)))
    for alone in map(_in_time, records.values()):
        events = [event for record in alone for event in record.events]
        spans.append(replace(alone[0], events=tuple(events)))
    return list(spans_in_order(spans))


def _in_time(records: list[Span]) -> list[Span]:
    return sorted(records, key=lambda record: record.start)


def _read_record(value: dict[str, Any]) -> Span:
    """A log record as a span with one event."""
    attributes, body = attributes_of(value.get("attributes")), parsed_json(_any_value(value.get("body")))
    details = {**attributes, **(body if isinstance(body, dict) else {"content": body} if body else {})}
    return Span(
        trace_id=_id(value, TRACE_KEYS) or "",
        span_id=_id(value, SPAN_KEYS) or "",
        parent_id=None,
        name=_event_name(value),
        start=nanoseconds(next((value[key] for key in RECORD_TIME_KEYS if value.get(key)), None)),
        attributes=attributes,
        events=((_event_name(value), details),),
    )


def read_span(value: dict[str, Any]) -> Span:
    """Parse a span from any export."""
    parent = _id(value, PARENT_KEYS)
    if parent is None and isinstance(value.get("parentSpanContext"), dict):
        parent = _id(value["parentSpanContext"], SPAN_KEYS)
    events = []
    for event in _list(value, "events"):
        if isinstance(event, dict):
            events.append((str(event.get("name", "")), attributes_of(event.get("attributes"))))
    attributes = attributes_of(value.get("attributes")) or _below(value, "attributes")
    return Span(
        trace_id=_id(value, TRACE_KEYS) or "",
        span_id=_id(value, SPAN_KEYS) or "",
        parent_id=parent,
        name=str(value.get("name", "")),
        start=nanoseconds(next((value[key] for key in START_KEYS if value.get(key) is not None), None)),
        attributes=attributes,
        events=tuple(events),
        annotations=tuple(note for note in _list(value, "annotations") if isinstance(note, dict)),
        ended=ended_by(value, attributes),
    )


ENDED_KEYS = ("gen_ai.response.finish_reasons", "llm.finish_reason", "ai.response.finishReason", "ai.finishReason")


def ended_by(value: dict[str, Any], attributes: dict[str, Any]) -> str:
    """How a call ended, by its finish reason, or else by the span's status or error."""
    told = [{"finish_reason": parsed_json(attributes.get(key))} for key in ENDED_KEYS]
    status = value.get("status")
    code = status.get("code", status.get("status_code")) if isinstance(status, dict) else status or value.get("status_code")
    failed = code == 2 or (isinstance(code, str) and code.upper().endswith("ERROR"))
    message = status.get("message", status.get("description")) if isinstance(status, dict) else value.get("status_message")
    return ending(*told) or failed_by(attributes.get("error.type") or (failed and (message or "error")))


def _id(value: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    """An id from the span or its context."""
    for holder in (value, value.get("spanContext"), value.get("context")):
        if isinstance(holder, dict):
            for key in keys:
                if isinstance(holder.get(key), str) and holder[key]:
                    return str(holder[key])
    # Tables of spans have one column for each path.
    return next((str(value[f"context.{key}"]) for key in keys if isinstance(value.get(f"context.{key}"), str)), None)


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


def _list(holder: Any, *keys: str) -> list[Any]:
    for key in keys:
        if isinstance(holder, dict) and isinstance(holder.get(key), list):
            return list(holder[key])
    return []


def first_text(attributes: dict[str, Any], *keys: str) -> str | None:
    """The first of these attributes that is a non-empty text."""
    return next((attributes[key] for key in keys if isinstance(attributes.get(key), str) and attributes[key]), None)


def spans_in_order(spans: list[Span]) -> Iterator[Span]:
    """The spans by start; of equal starts, a parent before its children."""
    by_id = {span.span_id: span for span in spans}

    def depth(span: Span) -> int:
        seen: set[str] = set()
        while span.parent_id in by_id and span.span_id not in seen:
            seen.add(span.span_id)
            span = by_id[str(span.parent_id)]
        return len(seen)

    yield from sorted(spans, key=lambda span: (span.start, depth(span)))


CAPTURE = (
    "OpenTelemetry's instrumentations leave texts out, unless OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says otherwise"
    " where the agent runs (SPAN_AND_EVENT; older ones: true)"
)
EVALUATION = "gen_ai.evaluation"
OPENINFERENCE_KIND = "openinference.span.kind"


@dataclass(frozen=True)
class SpanConventions:
    """How spans of one kind hold model calls and runs of tools.

    Attributes:
        name: The format's name, stored with each trace.
        recognises: Whether a span follows them. Never raises.
        model_calls: The model calls in a trace's spans. Raises only `InvalidRecord`.
        tool_runs: The runs of tools in a trace's spans.
        session_keys: Attributes that name the session, the first one first.
        user_keys: Attributes that name the user.
    """

    name: str
    recognises: Callable[[Span], bool]
    model_calls: Callable[[list[Span]], list[ModelCall]]
    tool_runs: Callable[[list[Span]], list[ToolRun]]
    session_keys: tuple[str, ...]
    user_keys: tuple[str, ...]


def as_span(value: dict[str, Any]) -> Span:
    """Parse a span from any export, or the record of an event as a span with that event."""
    return _read_record(value) if is_event(value) else read_span(value)


def span_reader(name: str, *known: SpanConventions) -> Reader:
    """A reader of the spans of traces by the first of these conventions that a span of the trace follows."""

    def recognises(value: Any) -> bool:
        return bool(value) and all(map(_is_exported, value if isinstance(value, list) else [value]))

    def parts(value: Any) -> list[tuple[str, Any]]:
        exported = value if isinstance(value, list) else [value]
        found = [span for one in exported for span in span_values(one) or [one]]
        # What is no span is a group of its own, so that it alone goes to quarantine.
        return [((_is_one(span) and _id(span, TRACE_KEYS)) or content_hash(span), span) for span in found]

    def read(values: Any, place: Place) -> Trace:
        if not _is_one(values[0]):
            if _is_envelope(values[0]):
                raise InvalidRecord("no messages", "the export holds no spans, and no records of GenAI events in spans")
            raise InvalidRecord("unknown format", "a span needs a name, its id and its trace's id")
        spans = read_spans(values)
        chosen = known[0] if len(known) == 1 else next((one for one in known if any(map(one.recognises, spans))), None)
        if chosen is None:
            raise InvalidRecord("no messages", "no span of the trace is of a model call")
        return _read_spans(spans, chosen, place)

    return Reader(name, recognises, read, "group", Signs.NAMED if len(known) > 1 else Signs.GENERAL, parts=parts)


def _read_spans(spans: list[Span], family: SpanConventions, place: Place) -> Trace:
    """The trace of these spans.

    Raises:
        InvalidRecord: they hold no conversation, or an invalid one.
    """
    conversation = join_calls(family.model_calls(spans), family.tool_runs(spans))
    if not any(message.get("content") for message in conversation.messages):
        raise InvalidRecord("no messages", f"no span of the trace has messages of a model call; {CAPTURE}")
    attributes = {key: value for span in reversed(spans) for key, value in span.attributes.items()}
    starts = [span.start for span in spans if span.start]
    scores = span_scores(spans)
    return build_trace(
        family.name,
        place,
        RawTrace(
            conversation.messages,
            id=spans[0].trace_id,
            tools=conversation.tools,
            session=first_text(attributes, *family.session_keys),
            user=first_text(attributes, *family.user_keys),
            created=time_text(min(starts, default=None)),
            model=conversation.model,
            outcome=outcome_of(scores),
            info={
                "spans": len(spans),
                "root": spans[0].name,
                **scores_info(scores),
                "other_conversations": conversation.others,
            },
        ),
    )


def span_scores(spans: list[Span]) -> list[LoggedScore]:
    """The scores in OpenTelemetry's evaluation events (which name no judge: a model's) and in Phoenix's annotations.

    Args:
        spans: All spans of a trace, in order. Scores of the root and of the first agent span count for the whole trace.
    """
    agents = [
        span
        for span in spans
        if span.attributes.get("gen_ai.operation.name") == "invoke_agent" or span.attributes.get(OPENINFERENCE_KIND) == "AGENT"
    ]
    whole_ids = {span.span_id for span in (*spans[:1], *agents[:1])}
    scores = []
    for span in spans:
        whole = span.span_id in whole_ids
        for name, details in span.events:
            if name == f"{EVALUATION}.result":
                value, label = details.get(f"{EVALUATION}.score.value"), details.get(f"{EVALUATION}.score.label")
                scores.append(LoggedScore(details.get(f"{EVALUATION}.name"), value, MODEL, label, whole))
        for note in span.annotations:
            result = object_field(note, "result")
            judge = judge_of(note.get("annotator_kind"))
            scores.append(LoggedScore(note.get("name"), result.get("score"), judge, result.get("label"), whole))
    return scores
