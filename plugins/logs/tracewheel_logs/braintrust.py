"""Reads Braintrust's spans, of logs and experiments, one a line or as the API's `events`: those of one root span are one trace.

Spans of models are the conversation, those of tools supply results that no later span shows. Without spans of models the
root's input and output are the conversation.
"""

from __future__ import annotations

from typing import Any

from tracewheel import (
    InvalidRecord,
    Place,
    RawTrace,
    Reader,
    Signs,
    Trace,
    as_chat,
    as_tools,
    build_trace,
    nanoseconds,
    object_field,
    text_field,
)
from tracewheel_logs.model_calls import ModelCall, ToolRun, join_calls
from tracewheel_logs.scores import LoggedScore, outcome_of, scores_info
from tracewheel_logs.values import failed_by

FORMAT = "braintrust"


def recognises(value: Any) -> bool:
    """Whether this is a span, or an answer of the API that holds spans."""
    if isinstance(value, dict) and isinstance(value.get("events"), list) and value["events"]:
        return all(map(_is_span, value["events"]))
    return _is_span(value)


def _is_span(value: Any) -> bool:
    return isinstance(value, dict) and {"span_id", "root_span_id", "span_attributes"} <= value.keys()


def parts(value: Any) -> list[tuple[str, Any]]:
    """The spans, each by the id of its root."""
    return [(str(span["root_span_id"]), span) for span in value.get("events", [value])]


def read(values: Any, place: Place) -> Trace:
    """The trace of one root span.

    Raises:
        InvalidRecord: it cannot be read.
    """
    spans = sorted(values, key=_start)
    root = next((span for span in spans if span["span_id"] == span["root_span_id"]), spans[0])
    calls = [_model_call(span) for span in spans if _kind(span) == "llm"]
    runs = [_tool_run(span) for span in spans if _kind(span) == "tool"]
    if not calls and not runs:
        calls = [_model_call(root)]
    conversation = join_calls(calls, runs)
    if not conversation.messages:
        raise InvalidRecord("no messages", "no span of a model, nor the root span, has messages")
    metadata = object_field(root, "metadata")
    scores = [
        LoggedScore(name, score, "", None, span is root)
        for span in spans
        for name, score in object_field(span, "scores").items()
        if score is not None
    ]
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            conversation.messages,
            id=text_field(root, "root_span_id"),
            tools=conversation.tools,
            session=text_field(metadata, "session_id", "thread_id", "conversation_id"),
            user=text_field(metadata, "user_id", "user"),
            created=text_field(root, "created"),
            model=conversation.model,
            outcome=outcome_of(scores),
            info={
                "name": object_field(root, "span_attributes").get("name"),
                "expected": root.get("expected"),
                "tags": root.get("tags"),
                "run_metadata": metadata,
                "spans": len(spans),
                **scores_info(scores),
                "other_conversations": conversation.others,
            },
        ),
    )


def _kind(span: dict[str, Any]) -> Any:
    return object_field(span, "span_attributes").get("type")


def _start(span: dict[str, Any]) -> float:
    return float(object_field(span, "metrics").get("start") or nanoseconds(span.get("created")) / 1e9)


def _model_call(span: dict[str, Any]) -> ModelCall:
    metadata = object_field(span, "metadata")
    offered = metadata.get("tools") or object_field(metadata, "params").get("tools")
    output: Any = span.get("output")
    said = [choice["message"] for choice in output] if _are_choices(output) else output
    return ModelCall(
        _start(span),
        as_chat(span.get("input"), "user"),
        as_chat(said, "assistant"),
        text_field(metadata, "model"),
        as_tools(offered),
        failed_by(span.get("error")),
    )


def _are_choices(output: Any) -> bool:
    return isinstance(output, list) and bool(output) and all(isinstance(one, dict) and "message" in one for one in output)


def _tool_run(span: dict[str, Any]) -> ToolRun:
    metadata = object_field(span, "metadata")
    identity = text_field(metadata, "tool_call_id", "tool_use_id", "toolCallId")
    return ToolRun(
        _start(span), object_field(span, "span_attributes").get("name"), identity, span.get("output"), span.get("input")
    )


READERS = (Reader(FORMAT, recognises, read, "group", Signs.NAMED, parts=parts),)
