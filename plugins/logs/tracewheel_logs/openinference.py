"""Reads OpenInference spans (`llm.*`), and spans of the AI SDK (`ai.*`), which OpenInference's tools accept too.

Source of the conventions: https://arize-ai.github.io/openinference/spec/
"""

from __future__ import annotations

from typing import Any

from tracewheel import as_chat, as_tools, check_stored, parsed_json
from tracewheel_logs.flattened import nested_attributes, unflattened
from tracewheel_logs.model_calls import ModelCall, ToolRun
from tracewheel_logs.spans import Span, SpanConventions, first_text, span_reader

FORMAT = "openinference"
KIND = "openinference.span.kind"
MODEL_KEYS = ("gen_ai.response.model", "gen_ai.request.model", "ai.response.model", "ai.model.id", "llm.model_name")
OWN = ("contents", "tool_calls", "function_call_name", "function_call_arguments_json")
SESSION_KEYS = ("session.id", "ai.telemetry.metadata.sessionId", "ai.telemetry.metadata.session_id")
USER_KEYS = ("user.id", "ai.telemetry.metadata.userId", "ai.telemetry.metadata.user_id")


def recognises(span: Span) -> bool:
    """Whether the span has these attributes."""
    return any(
        key == KIND or key.startswith(("llm.input_messages", "llm.output_messages", "ai.operationId"))
        for key in span.attributes
    )


def model_calls(spans: list[Span]) -> list[ModelCall]:
    """The model calls in a trace's spans.

    Raises:
        InvalidRecord: a message has content that is not text.
    """
    return [call for call in map(_model_call, spans) if call is not None]


def _model_call(span: Span) -> ModelCall | None:
    attributes = span.attributes
    if "ai.operationId" in attributes:
        inputs, outputs, tools = _ai_sdk(attributes)
    else:
        inputs = [message for entry in nested_attributes(attributes, "llm.input_messages") for message in _chat(entry)]
        outputs = [message for entry in nested_attributes(attributes, "llm.output_messages") for message in _chat(entry)]
        tools = as_tools([_schema(entry) for entry in nested_attributes(attributes, "llm.tools")])
        if not inputs and not outputs and attributes.get(KIND) == "LLM":
            inputs, outputs = as_chat(attributes.get("input.value")), as_chat(attributes.get("output.value"), "assistant")
    if not inputs and not outputs:
        return None
    return ModelCall(span.start, inputs, outputs, first_text(attributes, *MODEL_KEYS), tools, span.ended)


def _chat(entry: Any) -> list[dict[str, Any]]:
    message = unflattened(entry).get("message") if isinstance(entry, dict) else None
    if not isinstance(message, dict):
        return []
    said = {key: message[key] for key in ("role", "content", "tool_call_id", "name") if key in message}
    parts = [part["message_content"] for part in _items(message, "contents") if isinstance(part.get("message_content"), dict)]
    if parts and "content" not in said:
        said["content"] = parts
    calls = [part["tool_call"] for part in _items(message, "tool_calls") if isinstance(part.get("tool_call"), dict)]
    if calls:
        said["tool_calls"] = calls
    elif "function_call_name" in message:
        function = {"name": message["function_call_name"], "arguments": message.get("function_call_arguments_json")}
        said["tool_calls"] = [{"function": function}]
    made = as_chat(said)
    rest = {
        key: part for key, part in message.items() if key not in said and not (key in OWN and (parts or "tool_calls" in said))
    }
    check_stored({**rest, **(made[-1] if made else {})}, 0)
    return made


def _items(message: dict[str, Any], key: str) -> list[dict[str, Any]]:
    listed = message.get(key)
    return [unflattened(item) for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []


def _schema(entry: Any) -> Any:
    tool = unflattened(entry).get("tool") if isinstance(entry, dict) else None
    if not isinstance(tool, dict):
        return None
    schema = parsed_json(tool.get("json_schema"))
    if isinstance(schema, dict) and ("function" in schema or "name" in schema):
        return schema
    return {"name": tool.get("name"), "description": tool.get("description"), "parameters": schema}


def _ai_sdk(attributes: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Inputs, outputs and tools of a call through the AI SDK; an embedding has none."""
    asked = attributes.get("ai.prompt.messages") or attributes.get("ai.prompt")
    outputs: list[dict[str, Any]] = []
    text = attributes.get("ai.response.text") or attributes.get("ai.response.object")
    calls = parsed_json(attributes.get("ai.response.toolCalls"))
    if text or calls:
        outputs = as_chat([{"role": "assistant", "content": text, "tool_calls": calls if isinstance(calls, list) else []}])
    return (as_chat(asked) if outputs else []), outputs, as_tools(attributes.get("ai.prompt.tools"))


def tool_runs(spans: list[Span]) -> list[ToolRun]:
    """The runs of tools in a trace's spans."""
    runs = []
    for span in spans:
        attributes = span.attributes
        if attributes.get(KIND) != "TOOL" and "ai.toolCall.name" not in attributes:
            continue
        name = first_text(attributes, "tool.name", "ai.toolCall.name") or span.name
        call_id = first_text(attributes, "tool_call.id", "tool.id", "ai.toolCall.id")
        result = next((attributes[key] for key in ("output.value", "ai.toolCall.result") if key in attributes), None)
        runs.append(ToolRun(span.start, name, call_id, result))
    return runs


CONVENTIONS = SpanConventions(FORMAT, recognises, model_calls, tool_runs, SESSION_KEYS, USER_KEYS)
READERS = (span_reader(FORMAT, CONVENTIONS),)
