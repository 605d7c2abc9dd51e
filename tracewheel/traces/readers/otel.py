"""Reads OpenTelemetry spans of generative AI (`gen_ai.*`).

Messages are in `gen_ai.input.messages` and `gen_ai.output.messages` (semantic conventions since 1.37), in the span's
events, or in OpenLLMetry's numbered attributes (`gen_ai.prompt.0.role`).
Source of the conventions: https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from __future__ import annotations

from typing import Any

from tracewheel.traces.readers.content import as_text, read_parts
from tracewheel.traces.readers.conversation import ModelCall, ToolRun
from tracewheel.traces.readers.dialects import as_chat, parsed_json
from tracewheel.traces.readers.spans import Span, SpanConventions, ended_by, first_text, nested_attributes, span_reader
from tracewheel.traces.readers.tools import as_tools

FORMAT = "otel"
EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
AGENT_OPERATIONS = ("invoke_agent", "create_agent", "invoke_workflow")
SESSION_KEYS = ("gen_ai.conversation.id", "session.id", "langfuse.session.id", "traceloop.association.properties.session_id")
USER_KEYS = ("user.id", "enduser.id", "langfuse.user.id", "traceloop.association.properties.user_id")


def recognises(span: Span) -> bool:
    """Whether the span has these attributes or events."""
    return any(key.startswith("gen_ai.") for key in (*span.attributes, *(name for name, _ in span.events)))


def model_calls(spans: list[Span]) -> list[ModelCall]:
    """The model calls in a trace's spans. Agent spans, which summarise them, are used only if there are no others.

    Raises:
        InvalidRecord: a message has content that is not text.
    """
    inner = [span for span in spans if span.attributes.get("gen_ai.operation.name") not in AGENT_OPERATIONS]
    calls = [call for call in map(_model_call, inner) if call is not None]
    return calls or [call for call in map(_model_call, spans) if call is not None]


def _model_call(span: Span) -> ModelCall | None:
    attributes = dict(span.attributes)
    for name, details in span.events:
        if name in ("gen_ai.client.inference.operation.details", "gen_ai.content.prompt", "gen_ai.content.completion"):
            attributes |= details
    inputs = as_chat(
        attributes.get("gen_ai.input.messages")
        or nested_attributes(attributes, "gen_ai.prompt")
        or attributes.get("gen_ai.prompt")
    )
    outputs = as_chat(
        attributes.get("gen_ai.output.messages")
        or nested_attributes(attributes, "gen_ai.completion")
        or attributes.get("gen_ai.completion"),
        "assistant",
    )
    event_inputs, event_outputs = _from_events(span)
    inputs, outputs = inputs or event_inputs, outputs or event_outputs
    if not inputs and not outputs:
        return None
    instructions = parsed_json(attributes.get("gen_ai.system_instructions"))
    if instructions:
        inputs = [{"role": "system", "content": read_parts(instructions).text}, *inputs]
    ended = span.ended or ended_by({}, attributes)
    return ModelCall(span.start, inputs, outputs, model_of(attributes), _tools(attributes), ended)


def _from_events(span: Span) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The model's inputs and its first choice, as logged in events."""
    inputs: list[dict[str, Any]] = []
    outputs: list[dict[str, Any]] = []
    for name, details in span.events:
        body = parsed_json(details.get("body"))
        said = {**details, **(body if isinstance(body, dict) else {})}
        if name in EVENT_ROLES:
            message = {
                "role": EVENT_ROLES[name],
                "content": parsed_json(said.get("content")) if name == "gen_ai.tool.message" else said.get("content"),
            }
            if name == "gen_ai.tool.message":
                message = {"role": "tool", "content": as_text(said.get("content")), "tool_call_id": said.get("id")}
            inputs += as_chat({**message, "tool_calls": parsed_json(said.get("tool_calls"))})
        elif name == "gen_ai.choice" and not outputs:
            message = parsed_json(said.get("message"))
            message = message if isinstance(message, dict) else {"content": message or said.get("content")}
            calls = parsed_json(said.get("tool_calls")) or parsed_json(message.get("tool_calls"))
            outputs = as_chat({**message, "role": "assistant", "tool_calls": calls, "finish_reason": said.get("finish_reason")})
    return inputs, outputs


def _tools(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    given = as_tools(attributes.get("gen_ai.tool.definitions")) or as_tools(
        nested_attributes(attributes, "llm.request.functions")
    )
    parameters = parsed_json(attributes.get("model_request_parameters"))
    if not given and isinstance(parameters, dict):
        given = as_tools([*(parameters.get("function_tools") or []), *(parameters.get("output_tools") or [])])
    return given


def tool_runs(spans: list[Span]) -> list[ToolRun]:
    """The runs of tools in a trace's spans."""
    runs = []
    for span in spans:
        attributes = span.attributes
        name = first_text(attributes, "gen_ai.tool.name")
        if name is None and attributes.get("gen_ai.operation.name") != "execute_tool":
            continue
        result = next(
            (attributes[key] for key in ("gen_ai.tool.call.result", "tool_response", "output.value") if key in attributes), None
        )
        runs.append(ToolRun(span.start, name, first_text(attributes, "gen_ai.tool.call.id"), result))
    return runs


def model_of(attributes: dict[str, Any]) -> str | None:
    """The model that answered, or else the one requested."""
    return first_text(
        attributes, "gen_ai.response.model", "gen_ai.request.model", "ai.response.model", "ai.model.id", "llm.model_name"
    )


CONVENTIONS = SpanConventions(FORMAT, recognises, model_calls, tool_runs, SESSION_KEYS, USER_KEYS)
READERS = (span_reader(CONVENTIONS),)
