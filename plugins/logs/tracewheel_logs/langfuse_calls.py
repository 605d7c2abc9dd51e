"""Model calls in Langfuse's observations, whose inputs and outputs are what each framework's tracer put there."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import Any

from tracewheel import (
    as_chat,
    as_text,
    as_tools,
    ending,
    list_field,
    message_key,
    nanoseconds,
    object_field,
    parse_json,
    parsed_json,
)
from tracewheel_logs import gemini
from tracewheel_logs.model_calls import ModelCall, ToolRun
from tracewheel_logs.values import failed_by

ATTRIBUTES_OF_TOOLS = ("gen_ai.tool.definitions", "ai.prompt.tools")
ENDED_KEYS = ("gen_ai.response.finish_reasons", "llm.finish_reason", "ai.response.finishReason")
CALL_ID_KEYS = ("gen_ai.tool.call.id", "ai.toolCall.id", "tool_call.id")
TOOL_RESULT_KEYS = ("gcp.vertex.agent.tool_response", "gen_ai.tool.call.result")
# Claude's tracer logs the name of the field where the message should be.
DEEPEST = 100
MADE_ID = re.compile(r"call_[0-9]+(_[0-9]+)?")
NO_INPUT = {"content": "role"}
Message = dict[str, Any]

FIELD = re.compile(r"\s*([A-Za-z_]\w*)=")
TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
SPEAKER = re.compile(r"^(system|developer|user|assistant|tool): ", re.MULTILINE)
OPENING, CLOSING = "([{<", ")]}>"


def model_calls(observations: list[dict[str, Any]]) -> list[ModelCall]:
    """The model calls of a trace, in order. Of generations within one another, which log the same call, the fullest is read.

    A tracer may log only what is new in each call: one that begins with replies, or has no input, continues the call before
    it under the same parent.

    Raises:
        InvalidRecord: a message has content that is not text.
    """
    by_id = {_identity(observation, "id"): observation for observation in observations if _identity(observation, "id")}
    ordered = sorted(observations, key=lambda one: nanoseconds(one.get("startTime")))
    chosen: dict[Any, tuple[dict[str, Any], ModelCall]] = {}
    for observation in ordered:
        if observation.get("type") != "GENERATION":
            continue
        outermost, outer = observation, by_id.get(_identity(observation, "parentObservationId"))
        for _ in range(DEEPEST):
            if outer is None or outer.get("type") != "GENERATION":
                break
            outermost, outer = outer, by_id.get(_identity(outer, "parentObservationId"))
        call = _model_call(observation)
        key = _identity(outermost, "id") or id(outermost)
        earlier = chosen.get(key)
        if earlier is None or _fullness(call) >= _fullness(earlier[1]):
            tools = call.tools or (earlier[1].tools if earlier else [])
            chosen[key] = (outermost, replace(call, tools=tools))
    starts = [nanoseconds(one.get("startTime")) for one in ordered if is_tool_run(one)]
    return _continued(list(chosen.values()), by_id, starts)


def _identity(observation: dict[str, Any], key: str) -> str | None:
    value = observation.get(key)
    return value if isinstance(value, str) and value else None


def _fullness(call: ModelCall) -> tuple[int, int, int]:
    messages = [*call.inputs, *call.outputs]
    called = sum(len(message.get("tool_calls") or []) for message in messages)
    return called, bool(call.outputs), len({str(message["role"]) for message in messages})


def _continued(
    found: list[tuple[dict[str, Any], ModelCall]], by_id: dict[Any, dict[str, Any]], runs: list[int]
) -> list[ModelCall]:
    calls: list[ModelCall] = []
    last: dict[Any, ModelCall] = {}
    for observation, call in found:
        parent = _identity(observation, "parentObservationId")
        earlier = last.get(parent)
        if earlier is not None and all(message["role"] in ("tool", "assistant") for message in call.inputs):
            said = [*earlier.inputs, *earlier.outputs]
            whole = [*said, *call.inputs[_repeated(said, call.inputs) :]]
            outputs = call.outputs
            if not call.inputs and not any(earlier.start < start < call.start for start in runs):
                whole, outputs = said[:-1], _one_turn(said[-1:], outputs)
                calls.remove(earlier)
            call = replace(call, inputs=whole, outputs=outputs, tools=call.tools or earlier.tools)
        elif call.inputs and call.inputs[0]["role"] != "system":
            system = _system_of(by_id.get(parent))
            call = replace(call, inputs=[*system, *call.inputs])
        last[parent] = call
        calls.append(call)
    return calls


def _repeated(said: list[Message], inputs: list[Message]) -> int:
    """How many of a call's first inputs repeat the end of what was said before."""
    one, other = [message_key(message) for message in said], [message_key(message) for message in inputs]
    return next((size for size in range(min(len(one), len(other)), 0, -1) if one[-size:] == other[:size]), 0)


def _one_turn(before: list[Message], after: list[Message]) -> list[Message]:
    """Parts of one response that were logged apart, as one turn."""
    if not before or not after or before[0]["role"] != "assistant" or after[0]["role"] != "assistant":
        return [*before, *after]
    one, other = before[0], after[0]
    calls = [*(one.get("tool_calls") or []), *(other.get("tool_calls") or [])]
    text = "".join(part["content"] for part in (one, other) if part.get("content"))
    return [{**one, **other, "content": text or None, **({"tool_calls": calls} if calls else {})}, *after[1:]]


def _system_of(parent: dict[str, Any] | None) -> list[Message]:
    """The system prompt that only the agent around a call has."""
    given = unpacked((parent or {}).get("input"))
    if isinstance(given, dict) and isinstance(given.get("system"), str) and given["system"]:
        return [{"role": "system", "content": given["system"]}]
    first = given[0] if isinstance(given, list) and given else None
    return as_chat([first]) if isinstance(first, dict) and first.get("role") == "system" else []


def unpacked(value: Any) -> Any:
    """A value that may be JSON text within JSON text, or Python's `repr`."""
    for _ in range(3):
        if not isinstance(value, str):
            return value
        text = value.strip()
        if text[:1] == '"' and text[-1:] == '"' and len(text) > 1:
            try:
                value = parse_json(text)
                continue
            except ValueError:
                return value
        found = parsed_json(text)
        if found is text:
            found = read_repr(text)
            return value if found is None else found
        value = found
    return value


def said_by(value: Any, role: str) -> list[Message]:
    """The messages in an observation's or trace's input or output.

    Args:
        value: As logged.
        role: "user" for inputs, "assistant" for outputs; of a text without a role.

    Raises:
        InvalidRecord: a message has content that is not text.
    """
    value = unpacked(value)
    if value is None or value == "None" or value == NO_INPUT:
        return []
    if isinstance(value, str):
        transcript = read_transcript(value) if role == "user" else None
        return as_chat(value if transcript is None else transcript, role)
    if isinstance(value, dict) and value.keys() <= {"args", "kwargs"}:
        value = value.get("args") or value.get("kwargs")
    elif isinstance(value, dict) and isinstance(value.get("messages"), list):
        rest = {key: part for key, part in value.items() if key != "messages"}
        return as_chat({**rest, "messages": _whole(value["messages"])}, role)
    return as_chat(_whole(value) if isinstance(value, list) else value, role)


def _whole(messages: list[Any]) -> list[Any]:
    """Messages of a list: those in a `repr` are read, calls as text become calls, a tool's name as a role becomes the role."""
    whole: list[Any] = []
    names: set[str] = set()
    for item in messages:
        message = read_repr(item) if isinstance(item, str) else item
        message = item if message is None else message
        if isinstance(message, dict):
            calls = _calls_as_text(message)
            if calls:
                message = {"role": "assistant", "content": None, "tool_calls": calls}
                if whole and isinstance(whole[-1], dict) and whole[-1].get("as_text"):
                    whole[-1]["tool_calls"] += calls
                    continue
                whole.append({**message, "as_text": True})
                continue
            if isinstance(message.get("role"), str) and message["role"] in names:
                message = {"role": "tool", "name": message["role"], "content": message.get("content")}
            for call in list_field(message, "tool_calls"):
                function = call.get("function", call) if isinstance(call, dict) else None
                if isinstance(function, dict) and isinstance(function.get("name"), str):
                    names.add(function["name"])
        whole.append(message)
    return [{key: part for key, part in item.items() if key != "as_text"} if isinstance(item, dict) else item for item in whole]


def _calls_as_text(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls that Koog logs as the text of a message."""
    found = parsed_json(message.get("content"))
    if message.get("role") not in ("assistant", "tool") or not found:
        return []
    ok = isinstance(found, list) and all(isinstance(call, dict) and isinstance(call.get("function"), dict) for call in found)
    return list(found) if ok else []


def _model_call(observation: dict[str, Any]) -> ModelCall:
    """The model call of a generation. An OpenAI response object has the instructions and tools that the input lacks."""
    given, said = unpacked(observation.get("input")), unpacked(observation.get("output"))
    attributes = attributes_of(observation)
    model = observation.get("model") if isinstance(observation.get("model"), str) else None
    start = nanoseconds(observation.get("startTime"))
    if isinstance(given, dict) and gemini.is_request(given):
        response = said if isinstance(said, dict) else {}
        if isinstance(response.get("content"), dict):
            response = {"candidates": [response]}
        exchange = gemini.read_exchange(given, response)
        return ModelCall(start, _without_made_ids(exchange.inputs), _without_made_ids(exchange.outputs), model, exchange.tools)
    inputs, outputs = said_by(given, "user"), said_by(said, "assistant")
    if (system := attributes.get("gen_ai.system_instructions")) and not any(one["role"] == "system" for one in inputs):
        inputs = [*as_chat(system, "system"), *inputs]
    offered = next((attributes[key] for key in ATTRIBUTES_OF_TOOLS if key in attributes), None)
    if isinstance(said, dict) and said.get("object") == "response":
        if isinstance(said.get("instructions"), str):
            inputs = [{"role": "system", "content": said["instructions"]}, *inputs]
        offered = said.get("tools")
    tools = as_tools(offered) or as_tools(observation.get("toolDefinitions")) or _tools_in(given) or _tools_asked(attributes)
    told = [{"finish_reason": parsed_json(attributes.get(key))} for key in ENDED_KEYS]
    failed = (observation.get("statusMessage") or "error") if observation.get("level") == "ERROR" else None
    return ModelCall(start, inputs, outputs, model, tools, ending(*told) or failed_by(failed))


def _without_made_ids(messages: list[Message]) -> list[Message]:
    """Gemini logs no ids. Those made for one call differ from those of the next; the joined conversation gets its own."""
    for message in messages:
        if MADE_ID.fullmatch(message.get("tool_call_id") or ""):
            message["tool_call_id"] = None
        for call in message.get("tool_calls") or []:
            if MADE_ID.fullmatch(call["id"] or ""):
                call["id"] = None
    return messages


def _tools_in(given: Any) -> list[dict[str, Any]]:
    offered = [
        definition for message in (given if isinstance(given, list) else []) if (definition := _tool_definition(message))
    ]
    offered += list_field(given, "tools") if isinstance(given, dict) else []
    return as_tools(offered)


def _tool_definition(message: Any) -> dict[str, Any] | None:
    """The tool definition that LangChain's tracers log as a message; None for any other message."""
    content = object_field(message, "content") if isinstance(message, dict) and message.get("role") == "tool" else {}
    return content if content.get("type") == "function" and object_field(content, "function") else None


def _tools_asked(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    parameters = parsed_json(attributes.get("model_request_parameters"))
    if not isinstance(parameters, dict):
        return []
    return as_tools([*list_field(parameters, "function_tools"), *list_field(parameters, "output_tools")])


def is_tool_run(observation: dict[str, Any]) -> bool:
    """Whether an observation is the run of a tool."""
    return observation.get("type") == "TOOL"


def tool_run(observation: dict[str, Any]) -> ToolRun:
    """The run of a tool; Langfuse's own output may be empty where the tracer's attributes have it."""
    attributes = attributes_of(observation)
    call_id = next((attributes[key] for key in CALL_ID_KEYS if isinstance(attributes.get(key), str)), None)
    names = [attributes.get(key) for key in ("gen_ai.tool.name", "tool.name", "ai.toolCall.name")]
    name = next((name for name in [*names, observation.get("name")] if isinstance(name, str)), None)
    result = next((attributes[key] for key in TOOL_RESULT_KEYS if attributes.get(key)), None) or observation.get("output")
    whole = parsed_json(result)
    if isinstance(whole, dict) and whole.keys() == {"content"} and isinstance(whole["content"], list):
        result = "\n".join(as_text(part.get("text") if isinstance(part, dict) else part) for part in whole["content"])
    given = parsed_json(observation.get("input"))
    given = given["input"] if isinstance(given, dict) and given.keys() == {"input"} else given
    start = nanoseconds(observation.get("startTime"))
    return ToolRun(start, name, call_id, result, given)


def attributes_of(observation: dict[str, Any]) -> dict[str, Any]:
    """The tracer's attributes."""
    metadata = parsed_json(observation.get("metadata"))
    return object_field(metadata, "attributes") if isinstance(metadata, dict) else {}


def read_repr(text: str) -> Any:
    """The value of a `repr`, a dictionary's or list's, or pydantic's `role='user' content='…'`; None for any other text."""
    if text[:1] in ("{", "["):
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return None
    if not text.startswith(("role=", "content=")):
        return None
    fields: dict[str, Any] = {}
    at = 0
    while match := FIELD.match(text, at):
        at = _end_of_value(text, match.end())
        fields[match[1]] = _literal(text[match.end() : at])
    return fields if at >= len(text.rstrip()) and fields.get("role") else None


def _end_of_value(text: str, start: int) -> int:
    depth, at = 0, start
    while at < len(text):
        if quoted := TEXT.match(text, at):
            at = quoted.end()
            continue
        if text[at] == " " and depth == 0:
            return at
        depth += (text[at] in OPENING) - (text[at] in CLOSING)
        at += 1
    return at


def _literal(text: str) -> Any:
    """The value; the text itself of what is no literal, such as another object's `repr`."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def read_transcript(text: str) -> list[dict[str, Any]] | None:
    """The messages of a transcript that begins with a role; None for any other text, and for one that has lost its calls."""
    if SPEAKER.match(text) is None:
        return None
    parts = SPEAKER.split(text)[1:]
    messages = [{"role": role, "content": said.rstrip("\n")} for role, said in zip(parts[::2], parts[1::2], strict=True)]
    return None if any(message["role"] == "tool" for message in messages) else messages
