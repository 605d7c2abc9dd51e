"""Converts the messages of providers, frameworks and tracers to OpenAI's chat form.

Supported are OpenAI's chat and responses forms, Anthropic's content blocks, OpenTelemetry's message parts, Gemini's and
Bedrock's parts, and the messages of LangChain and of the AI SDK, of models and of its UI. A message of which something was
not read is an error (`unread`); `messages` checks the result.
"""

from __future__ import annotations

from typing import Any

from tracewheel.core.endings import UNFINISHED, ending, with_ending
from tracewheel.core.strict_json import parse_json
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.content import (
    APART,
    CALL_KEYS,
    RESULT_KEYS,
    TEXTS,
    Content,
    as_text,
    identity_of,
    read_parts,
    read_steps,
    tool_call,
)
from tracewheel.traces.readers.unread import check_item, says_something

ROLE_NAMES = {
    "human": "user",
    "HumanMessage": "user",
    "ai": "assistant",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "gpt": "assistant",
    "SystemMessage": "system",
    "function": "tool",
    "ToolMessage": "tool",
    "FunctionMessage": "tool",
    "USER": "user",
    "User": "user",
    "ASSISTANT": "assistant",
    "Assistant": "assistant",
    "SYSTEM": "system",
    "System": "system",
    "TOOL": "tool",
    "Tool": "tool",
    "toolResult": "tool",
}
PARTS = {"type", "text", *CALL_KEYS, *RESULT_KEYS}  # keys of which each part has one
CALL_IDS = ("toolCallId", "tool_call_id", "toolUseId", "call_id")
CALL_LISTS, CALL_FIELDS = ("tool_calls", "toolCalls"), ("function_call", "functionCall")
KNOWN_ROLES = {"system", "developer", "user", "assistant", "tool", *ROLE_NAMES}
ITEM_TYPES = {"function_call", "function_call_output", "reasoning", "message"}


def as_chat(value: Any, default_role: str = "user") -> list[dict[str, Any]]:
    """The messages in a model's input or output; may be empty.

    Args:
        value: Text, a message, a list of messages, an object that holds them, or the JSON text of one of these.
        default_role: The role of a bare text: "user" for inputs, "assistant" for outputs.

    Raises:
        InvalidRecord: a message has content that is not text.
    """
    value = parsed_json(value)
    if isinstance(value, str):
        return [{"role": default_role, "content": value}] if value else []
    if isinstance(value, dict):
        return _of_object(value, default_role)
    if not isinstance(value, list):
        return []
    if value and all(isinstance(item, list) for item in value):
        return as_chat(value[0], default_role)
    if value and all(isinstance(item, dict) and "toolCallId" in item and "role" not in item for item in value):
        return [{"role": "assistant", "content": None, "tool_calls": [_call(item) for item in value]}]
    if value and all(isinstance(item, dict) and "role" not in item and _name(item, "type") in TEXTS for item in value):
        return [{"role": default_role, "content": read_parts(value).text}]
    messages: list[dict[str, Any]] = []
    for item in value:
        _append(messages, item, default_role)
    return messages


def _of_object(value: dict[str, Any], default_role: str) -> list[dict[str, Any]]:
    if is_chat_message(value):
        messages: list[dict[str, Any]] = []
        _append(messages, value, default_role)
        return messages
    system = [{"role": "system", "content": as_text(value["system"])}] if isinstance(value.get("system"), str) else []
    for key in ("messages", "prompt", "input", "output", "text", "message", "content"):
        if value.get(key):
            return system + _ended(as_chat(value[key], "assistant" if key == "output" else default_role), value)
    for key in ("choices", "generations"):
        if isinstance(value.get(key), list) and value[key]:
            return _ended(as_chat(value[key][0], "assistant"), value)
    return []


def _ended(messages: list[dict[str, Any]], holder: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages, whose last turn ended as the object around them says."""
    is_turn = bool(messages) and messages[-1]["role"] == "assistant"
    return with_ending(messages, ending(holder)) if is_turn else messages


def is_chat_message(value: Any) -> bool:
    """Whether a value is one message, or one item of the responses form."""
    if not isinstance(value, dict):
        return False
    role, kind = _name(value, "role"), _name(value, "type")
    if role in KNOWN_ROLES or kind in ITEM_TYPES:
        return True
    return (kind in ROLE_NAMES and "content" in value) or ("kwargs" in value and value.get("lc") == 1)


def _name(value: dict[str, Any], key: str) -> str | None:
    """A field that is text; None of any other."""
    return value[key] if isinstance(value.get(key), str) else None


def has_tool_definition(value: Any) -> dict[str, Any] | None:
    """The tool definition that LangChain's tracers log as a message; None for any other message."""
    content = value.get("content") if isinstance(value, dict) and value.get("role") == "tool" else None
    is_definition = (
        isinstance(content, dict) and content.get("type") == "function" and isinstance(content.get("function"), dict)
    )
    return content if is_definition else None


def _append(messages: list[dict[str, Any]], item: Any, default_role: str) -> None:
    """Append one item's messages. The calls of one response are one turn, whether in one item or in several."""
    if isinstance(item, str):
        messages.append({"role": default_role, "content": item})
        return
    if not isinstance(item, dict):
        raise InvalidRecord("message unreadable", f"message {len(messages)} is not an object")
    if item.get("lc") == 1 and isinstance(item.get("kwargs"), dict):
        path = item.get("id")
        item = {"type": str(path[-1]) if isinstance(path, list) and path else "", **item["kwargs"]}
    if has_tool_definition(item):
        return
    kind = _name(item, "type")
    if kind == "function_call_output":
        messages.append(
            {"role": "tool", "tool_call_id": identity_of(item.get("call_id")), "content": as_text(item.get("output"))}
        )
    elif kind in ("function_call", "reasoning") and "role" not in item:
        turn = _response_turn(messages)
        if kind == "function_call":
            turn.setdefault("tool_calls", []).append(_call({**item, "id": item.get("call_id") or item.get("id")}))
        elif summary := _reasoning(item):
            turn["reasoning"] = f"{turn.get('reasoning', '')}{summary}"
    else:
        role = item.get("role") or kind or default_role
        added = _messages_of(item, ROLE_NAMES.get(role, role) if isinstance(role, str) else role)
        check_item(item, added, len(messages))
        if "role" not in item and not kind and not any(map(says_something, added)):
            return  # no message, such as one of a tracer that holds the tools
        if kind == "message" and added and added[0]["role"] == "assistant" and messages and messages[-1].get("content") is None:
            last = messages[-1] if messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1] else None
            if last is not None:
                last.update(added.pop(0))
        messages += added


def _response_turn(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant turn that an item of the responses form belongs to."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    return messages[-1]


def _reasoning(item: dict[str, Any]) -> str:
    parts = [part for key in ("summary", "content") if isinstance(item.get(key), list) for part in item[key]]
    return "".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def _messages_of(item: dict[str, Any], role: str) -> list[dict[str, Any]]:
    """The messages of one item. An agent's turn is followed by its results; elsewhere results come before the text."""
    said = _content_of(item)
    if role == "tool" and _is_data(said):
        said = as_text(said)
    steps = read_steps(said) if role == "assistant" else [read_parts(said, APART)]
    last = steps[-1]
    last.calls.extend(
        call for call in _calls_of(item) if not any(_is_same_call(call, one) for step in steps for one in step.calls)
    )
    last.reasoning += as_text(item.get("reasoning_content") or item.get("reasoning") or "")
    if last.text is None and isinstance(item.get("refusal"), str) and item["refusal"]:
        last.text = item["refusal"]
    if role == "tool" and not last.results:
        call_id = identity_of(item.get("tool_call_id") or item.get("toolCallId"))
        return [_result({"id": call_id, "name": item.get("name") or item.get("toolName"), "content": last.text or ""})]
    messages: list[dict[str, Any]] = []
    for step in steps:
        results = [_result(result) for result in step.results]
        speaks = role != "tool" and (step.text is not None or step.calls or not results)
        turn = [_turn(role, step)] if speaks else []
        messages += [*turn, *results] if role == "assistant" else [*results, *turn]
    if messages and messages[-1]["role"] == "assistant" and (mark := item.get(UNFINISHED) or ending(item)):
        messages[-1][UNFINISHED] = mark
    return messages


def _is_data(said: Any) -> bool:
    """Whether a tool's reply is data rather than parts of a message."""
    parts = said if isinstance(said, list) else [said] if isinstance(said, dict) else []
    return any(isinstance(part, dict) and not PARTS & part.keys() for part in parts)


def _content_of(item: dict[str, Any]) -> Any:
    """The field of a message that holds what was said, with the AI SDK's older `toolInvocations` as parts before it."""
    parts, content = item.get("parts"), item.get("content")
    if not content and isinstance(item.get("text"), str | list):
        content = item["text"]
    if isinstance(parts, list) and parts:
        if (
            isinstance(content, str)
            and content.strip()
            and not any(isinstance(part, dict) and part.get("text") for part in parts)
        ):
            return [*parts, content]
        return parts
    invocations = item.get("toolInvocations")
    if isinstance(invocations, list) and invocations:
        listed = content if isinstance(content, list) else [content] if content else []
        return [*({"type": "tool-invocation", "toolInvocation": one} for one in invocations), *listed]
    return content


def _is_same_call(call: dict[str, Any], other: dict[str, Any]) -> bool:
    if call == other:
        return True
    one, two = _call(call), _call(other)
    return one["id"] is not None and one == two


def _turn(role: str, content: Content) -> dict[str, Any]:
    message: dict[str, Any] = {"role": role, "content": content.text}
    if content.calls:
        message["content"] = content.text or None
        message["tool_calls"] = [_call(call) for call in content.calls]
    if content.reasoning and role == "assistant":
        message["reasoning"] = content.reasoning
    return message


def _result(result: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "tool", "tool_call_id": result.get("id"), "content": as_text(result.get("content"))}
    if isinstance(result.get("name"), str):
        message["name"] = result["name"]
    return message


def _calls_of(item: dict[str, Any]) -> list[dict[str, Any]]:
    extra = item.get("additional_kwargs")
    # LangChain lists calls with broken arguments apart.
    broken = item["invalid_tool_calls"] if isinstance(item.get("invalid_tool_calls"), list) else []
    for holder in (item, extra if isinstance(extra, dict) else {}):
        for key in CALL_LISTS:
            if isinstance(holder.get(key), list) and holder[key]:
                return [call for call in [*holder[key], *broken] if isinstance(call, dict)]
        for key in CALL_FIELDS:
            if isinstance(holder.get(key), dict):
                return [holder[key]]
    return [call for call in broken if isinstance(call, dict)]


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """A call in OpenAI's form; its id may still be missing."""
    function = call["function"] if isinstance(call.get("function"), dict) else call
    if isinstance(call.get("custom"), dict):  # a tool whose input is a text
        function = {"name": call["custom"].get("name"), "arguments": {"input": call["custom"].get("input")}}
    keys = ("arguments", "args", "input", "parameters")
    arguments = next((function[key] for key in keys if function.get(key) is not None), None)
    identity = identity_of(next((call[key] for key in ("id", *CALL_IDS) if call.get(key)), None))
    name = function.get("name") or function.get("toolName") or function.get("tool_name")
    return tool_call(identity, name, arguments)


def parsed_json(value: Any) -> Any:
    """The value of JSON text of an object or a list; anything else unchanged."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return parse_json(value)
        except ValueError:
            return value
    return value


def tie_calls(messages: list[Any]) -> list[Any]:
    """Make missing call ids. A reply without one gets the id of the first open call with its name, or of any open call."""
    open_calls: list[tuple[str, str]] = []
    for position, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        if message.get("role") == "assistant":
            calls = message.get("tool_calls") or []
            for number, call in enumerate(calls if isinstance(calls, list) else []):
                if isinstance(call, dict) and not call.get("id"):
                    call["id"] = f"call_{position}_{number}"
            open_calls = [(call["id"], call["function"]["name"]) for call in calls if _has_name(call)]
        elif message.get("role") == "tool" and open_calls:
            call_id = message.get("tool_call_id")
            if not call_id:
                named = [call for call in open_calls if call[1] == message.get("name")]
                message["tool_call_id"] = call_id = (named or open_calls)[0][0]
            open_calls = [call for call in open_calls if call[0] != call_id]
    return messages


def _has_name(call: Any) -> bool:
    return isinstance(call, dict) and isinstance(call.get("function"), dict) and "name" in call["function"]
