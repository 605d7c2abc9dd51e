"""Reads OpenTelemetry spans of generative AI (`gen_ai.*`).

Messages are in `gen_ai.input.messages` and `gen_ai.output.messages` (semantic conventions since 1.37), in the span's
events, or in OpenLLMetry's numbered attributes (`gen_ai.prompt.0.role`).
Source of the conventions: https://opentelemetry.io/docs/specs/semconv/gen-ai/
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tracewheel import as_chat, as_text, as_tools, parsed_json, read_parts
from tracewheel_logs import mlflow, openinference
from tracewheel_logs.flattened import nested_attributes
from tracewheel_logs.model_calls import ModelCall, ToolRun
from tracewheel_logs.spans import Span, SpanConventions, as_span, first_text, read_span, span_reader

FORMAT = "otel"
EVENT_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
DETAILS, CHOICE = "gen_ai.client.inference.operation.details", "gen_ai.choice"
Event = tuple[str, dict[str, Any]]
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
    calls = [call for span in inner for call in _model_calls(span)]
    return calls or [call for span in spans for call in _model_calls(span)]


def _model_calls(span: Span) -> list[ModelCall]:
    """The model call of a span; the calls of one whose events, one a message, are those of several."""
    rounds: list[list[Event]] = [[]]
    for event in span.events:
        if event[0] in (*EVENT_ROLES, DETAILS) and rounds[-1] and rounds[-1][-1][0] in (CHOICE, DETAILS):
            rounds.append([])
        rounds[-1].append(event)
    calls = [call for events in rounds if (call := _model_call(span, events)) is not None]
    return [*(replace(call, ended="") for call in calls[:-1]), *calls[-1:]]  # the span says how the last one ended


def _model_call(span: Span, events: list[Event]) -> ModelCall | None:
    attributes = dict(span.attributes)
    for name, details in events:
        if name in (DETAILS, "gen_ai.content.prompt", "gen_ai.content.completion"):
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
    said = _from_events(events)
    inputs, outputs = inputs or said.inputs, outputs or said.outputs
    if not inputs and not outputs:
        return None
    instructions = parsed_json(attributes.get("gen_ai.system_instructions"))
    if instructions:
        inputs = [{"role": "system", "content": read_parts(instructions).text}, *inputs]
    ended = span.ended or read_span({"attributes": attributes}).ended
    return ModelCall(span.start, inputs, outputs, model_of(attributes), _tools(attributes) or said.tools, ended)


def _from_events(events: list[Event]) -> ModelCall:
    """The model's inputs and its first choice, as logged in events.

    A choice that ends with a call which it does not hold is a part of one answer, as are Anthropic's blocks; the next has it.
    OpenLLMetry logs the tools as a user's message.
    """
    inputs: list[dict[str, Any]] = []
    outputs: list[dict[str, Any]] = []
    tools: list[dict[str, Any]] = []
    waits = True
    for name, details in events:
        body = parsed_json(details.get("body"))
        said = {**details, **(body if isinstance(body, dict) else {})}
        content = said.get("content")
        if isinstance(content, dict) and content.keys() == {"tools"}:
            tools = as_tools(content["tools"])
        elif name in EVENT_ROLES:
            message = {
                "role": EVENT_ROLES[name],
                "content": parsed_json(said.get("content")) if name == "gen_ai.tool.message" else said.get("content"),
            }
            if name == "gen_ai.tool.message":
                message = {"role": "tool", "content": as_text(said.get("content")), "tool_call_id": said.get("id")}
            inputs += as_chat({**message, "tool_calls": parsed_json(said.get("tool_calls"))})
        elif name == CHOICE and waits:
            message = parsed_json(said.get("message"))
            message = message if isinstance(message, dict) else {"content": message or said.get("content")}
            calls = parsed_json(said.get("tool_calls")) or parsed_json(message.get("tool_calls"))
            text = outputs[0]["content"] if outputs and not message.get("content") else message.get("content")
            reason = said.get("finish_reason")
            message |= {"content": text, "role": "assistant", "tool_calls": calls, "finish_reason": reason}
            outputs = as_chat(message)
            waits = not calls and reason in ("tool_call", "tool_calls", "tool_use")
    return ModelCall(0, inputs, outputs, None, tools)


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
# The most general comes last.
ALL = (mlflow.CONVENTIONS, openinference.CONVENTIONS, CONVENTIONS)
READERS = (span_reader(FORMAT, *ALL),)


def of_agent(value: dict[str, Any]) -> bool:
    """Whether a span or log record tells of an agent's conversation, by one of the conventions, or who had it."""
    span = as_span(value)
    return any(one.recognises(span) for one in ALL) or bool(identity_keys().keys() & span.attributes.keys())


def identity_keys() -> dict[str, str]:
    """The attributes that name a session or a user, and which of the two."""
    named: dict[str, str] = {}
    for one in ALL:
        named |= dict.fromkeys(one.session_keys, "session") | dict.fromkeys(one.user_keys, "user")
    return named
