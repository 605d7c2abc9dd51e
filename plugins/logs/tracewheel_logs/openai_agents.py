"""Reads traces of OpenAI's Agents SDK, as its trace processors export them: a trace and its spans, in any files and order.

Spans of model calls through the chat API hold messages. Those of the responses API hold only an id, unless a processor adds
the input and the response; without that, the log has no conversation, and a result's `to_input_list()` is to be logged.
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
    as_tools,
    build_trace,
    ending,
    list_field,
    nanoseconds,
    object_field,
    text_field,
)
from tracewheel_logs.dialogue import Dialogue
from tracewheel_logs.model_calls import ModelCall, ToolRun, join_calls
from tracewheel_logs.openai_responses import read_response_items
from tracewheel_logs.values import failed_by

FORMAT = "openai_agents"
OBJECTS = ("trace", "trace.span")


def recognises(value: Any) -> bool:
    """Whether this is a trace, a span, or an export of them."""
    if isinstance(value, dict) and isinstance(value.get("data"), list) and value["data"]:
        return all(map(_is_part, value["data"]))
    return _is_part(value)


def _is_part(value: Any) -> bool:
    if not isinstance(value, dict) or value.get("object") not in OBJECTS:
        return False
    return "workflow_name" in value if value["object"] == "trace" else isinstance(value.get("span_data"), dict)


def parts(value: Any) -> list[tuple[str, Any]]:
    """The traces and spans of an export by the id of their trace.

    Raises:
        InvalidRecord: a part has no id.
    """
    found = []
    for part in value["data"] if isinstance(value.get("data"), list) else [value]:
        identity = text_field(part, "id" if part["object"] == "trace" else "trace_id")
        if identity is None:
            raise InvalidRecord("field unreadable", "a part of the export has no trace id")
        found.append((identity, part))
    return found


def read(values: Any, place: Place) -> Trace:
    """The trace of one group of parts.

    Raises:
        InvalidRecord: it cannot be read.
    """
    about: dict[str, Any] = next((part for part in values if part["object"] == "trace"), {})
    spans = sorted((part for part in values if part["object"] != "trace"), key=lambda span: nanoseconds(span.get("started_at")))
    data = [(span, span["span_data"]) for span in spans]
    calls = [_model_call(span, one) for span, one in data if one.get("type") in ("generation", "response")]
    runs = [_tool_run(span, one) for span, one in data if one.get("type") == "function"]
    conversation = join_calls(calls, runs)
    if not conversation.messages:
        hidden = any(one.get("type") == "response" for _, one in data)
        hint = "its model calls hold only response ids: log the result's to_input_list()" if hidden else "no model call"
        raise InvalidRecord("no messages", hint)
    metadata = object_field(about, "metadata")
    offered = [name for _, one in data if one.get("type") == "agent" for name in list_field(one, "tools")]
    errors = [span["error"] for span in spans if span.get("error")]
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            conversation.messages,
            id=text_field(about, "id") or (text_field(spans[0], "trace_id") if spans else None),
            tools=conversation.tools,
            session=text_field(about, "group_id"),
            user=text_field(metadata, "user", "user_id"),
            created=text_field(spans[0], "started_at") if spans else None,
            model=conversation.model,
            info={
                "name": about.get("workflow_name"),
                "metadata": metadata,
                "tool_names": list(dict.fromkeys(name for name in offered if isinstance(name, str))),
                "errors": errors,
                "other_conversations": conversation.others,
            },
        ),
    )


def _model_call(span: dict[str, Any], data: dict[str, Any]) -> ModelCall:
    response = object_field(data, "response")
    given, said = Dialogue(), Dialogue()
    if isinstance(response.get("instructions"), str):
        given.said("system", response["instructions"])
    read_response_items(data.get("input"), given)
    read_response_items(data.get("output") or response.get("output"), said)
    model = text_field(data, "model") or text_field(response, "model")
    ended = ending(response) or failed_by(span.get("error"))
    tools = as_tools(response.get("tools"))
    return ModelCall(nanoseconds(span.get("started_at")), given.messages(), said.messages(), model, tools, ended)


def _tool_run(span: dict[str, Any], data: dict[str, Any]) -> ToolRun:
    output = data.get("output")
    return ToolRun(nanoseconds(span.get("started_at")), data.get("name"), None, output)


READERS = (Reader(FORMAT, recognises, read, "group", Signs.NAMED, parts=parts),)
