"""Reads ShareGPT conversations: `{"conversations": [{"from", "value"}]}`.

Tool calls are turns (`function_call`, `tool_call`) that hold one JSON object or a list of them; replies are turns too
(`observation`, `tool`). Assistant text right before calls forms one turn with them. Calls in the assistant's text are read
too: Hermes' `<tool_call>` with `<tool_response>`, and ToolBench's `Action:` and `Action Input:`; so are the tools in the
system prompt.
"""

from __future__ import annotations

import json
from typing import Any

from tracewheel.core.strict_json import parse_json
from tracewheel.core.types import Trace
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.building import Place, RawTrace, build_trace, message_list, reward_field
from tracewheel.traces.readers.content import arguments_text
from tracewheel.traces.readers.dialects import tie_calls
from tracewheel.traces.readers.reader import Reader
from tracewheel.traces.readers.text_calls import hermes_replies, hermes_turn, react_turn, tools_in
from tracewheel.traces.readers.tools import as_tools

FORMAT = "sharegpt"
SPEAKERS = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "function_call": "call",
    "tool_call": "call",
    "observation": "tool",
    "function": "tool",
    "function_response": "tool",
    "tool": "tool",
    "tool_response": "tool",
}
READ = {"conversations", "system", "tools", "reward"}


def recognises(value: Any) -> bool:
    """Whether this is one conversation."""
    turns = value.get("conversations") if isinstance(value, dict) else None
    return isinstance(turns, list) and bool(turns) and any(isinstance(turn, dict) and "from" in turn for turn in turns)


def read(value: Any, place: Place) -> Trace:
    """The trace of one conversation.

    Raises:
        InvalidRecord: it cannot be read.
    """
    messages, tools = conversation(message_list(value, "conversations"), value.get("tools"), value.get("system"))
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            messages,
            tools=tools,
            outcome=reward_field(value, "reward"),
            info={key: part for key, part in value.items() if key not in READ},
        ),
    )


def conversation(turns: list[Any], tools: Any, system: Any = None) -> tuple[list[Any], list[dict[str, Any]]]:
    """The messages of turns, and the tools, given or described in the system prompt.

    Raises:
        InvalidRecord: a turn cannot be read.
    """
    messages: list[dict[str, Any]] = []
    if isinstance(system, str) and system:
        messages.append({"role": "system", "content": system})
    for position, turn in enumerate(turns):
        _append(messages, turn, position)
    if any(message["role"] == "tool" for message in messages):
        messages = [_with_react(message) for message in messages]
    described = tools_in(messages[0]["content"]) if messages and messages[0]["role"] == "system" and not tools else []
    return tie_calls(messages), as_tools(tools) or as_tools(described)


def _with_react(message: dict[str, Any]) -> dict[str, Any]:
    is_text = message["role"] == "assistant" and "tool_calls" not in message and isinstance(message["content"], str)
    return (react_turn(message["content"]) if is_text else None) or message


def _append(messages: list[dict[str, Any]], turn: Any, position: int) -> None:
    if not isinstance(turn, dict) or not isinstance(turn.get("value"), str):
        raise InvalidRecord("message unreadable", f"turn {position} has no text as its 'value'")
    speaker = turn.get("from")
    role = SPEAKERS.get(speaker) if isinstance(speaker, str) else None
    if role is None:
        raise InvalidRecord("unknown role", f"turn {position} is from {speaker!r:.40}")
    if role == "tool":
        for reply in hermes_replies(turn["value"]):
            _name_call(messages, reply)
            messages.append(reply)
        return
    if role == "assistant" and (called := hermes_turn(turn["value"])):
        messages.append(called)
        return
    if role != "call":
        messages.append({"role": role, "content": turn["value"]})
        return
    if not messages or messages[-1]["role"] != "assistant" or "tool_calls" in messages[-1]:
        messages.append({"role": "assistant", "content": None})
    messages[-1]["tool_calls"] = [_call(call, position) for call in _calls(turn["value"], position)]


def _name_call(messages: list[dict[str, Any]], reply: dict[str, Any]) -> None:
    """Give a call without an id the id of its reply, by the tool's name, or in order; an id that a reply repeats is dropped."""
    identity = reply.get("tool_call_id")
    turn: dict[str, Any] = next((message for message in reversed(messages) if message["role"] != "tool"), {})
    calls = turn.get("tool_calls") or []
    if not identity or not calls:
        return
    open_calls = [call for call in calls if not call["id"]]
    if any(call["id"] == identity for call in calls):
        if any(message.get("tool_call_id") == identity for message in messages[messages.index(turn) :]):
            del reply["tool_call_id"]
    elif open_calls:
        named = [call for call in open_calls if call["function"]["name"] == reply.get("name")]
        (named or open_calls)[0]["id"] = identity


def _calls(text: str, position: int) -> list[Any]:
    try:
        value = parse_json(text)
    except ValueError as error:
        raise InvalidRecord("tool calls unreadable", f"turn {position}: {error}") from error
    return value if isinstance(value, list) else [value]


def _call(call: Any, position: int) -> dict[str, Any]:
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise InvalidRecord(
            "tool calls unreadable", f"turn {position}: a call needs a name, as in {json.dumps({'name': 'tool'})}"
        )
    arguments = next((call[key] for key in ("arguments", "parameters") if call.get(key) is not None), None)
    identity = call.get("id") if isinstance(call.get("id"), str) else None
    return {"id": identity, "type": "function", "function": {"name": call["name"], "arguments": arguments_text(arguments)}}


READER = Reader(FORMAT, recognises, read)
