"""Reads ShareGPT conversations: `{"conversations": [{"from", "value"}]}`.

Tool calls are turns (`function_call`, `tool_call`) that hold one JSON object or a list of them; replies are turns too
(`observation`, `tool`). Assistant text right before calls forms one turn with them. Calls in the assistant's text are read
too: Hermes' `<tool_call>` with `<tool_response>`, and ToolBench's `Action:` and `Action Input:`; so are the tools in the
system prompt.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Any

from tracewheel import (
    InvalidRecord,
    Place,
    RawTrace,
    Reader,
    Trace,
    as_text,
    as_tools,
    build_trace,
    check_json,
    identity_of,
    message_list,
    parse_json,
    reward_field,
    tie_calls,
    tool_call,
)

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

CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
RESPONSE = re.compile(r"<tool_response>\s*(.*?)\s*</tool_response>", re.DOTALL)
TOOLS = re.compile(r"<tools>\s*(.*?)\s*</tools>", re.DOTALL)
NAME = re.compile(r"""["']name["']\s*:\s*["']([^"']+)["']""")
ACTION = re.compile(r"\bAction:[ \t]*(\S[^\n]*?)\s*\nAction Input:\s*(.*?)\s*\Z", re.DOTALL)
APIS = re.compile(r"access to the following (?:APIs|tools): *(\[.*\])", re.DOTALL)


def recognises(value: Any) -> bool:
    """Whether this is one conversation."""
    turns = value.get("conversations") if isinstance(value, dict) else None
    return isinstance(turns, list) and bool(turns) and any(isinstance(turn, dict) and "from" in turn for turn in turns)


def read(value: Any, place: Place) -> Trace:
    """The trace of one conversation.

    Raises:
        InvalidRecord: it cannot be read.
    """
    turns = message_list(value, "conversations")
    chosen = value.get("chosen")
    if isinstance(chosen, dict) and "value" in chosen:  # of a row of preferences
        turns = [*turns, chosen]
    messages, tools = conversation(turns, value.get("tools"), value.get("system"))
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            messages,
            tools=tools,
            outcome=reward_field(value, "reward"),
            info={key: part for key, part in value.items() if key not in READ and part is not chosen},
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
    return tool_call(identity, call["name"], arguments)


READERS = (Reader(FORMAT, recognises, read),)


def hermes_turn(text: str) -> dict[str, Any] | None:
    """The assistant's turn of a text with `<tool_call>` blocks; None for a text without a readable one.

    A block that is no JSON, but names a tool, is a call with the block as its broken arguments.
    """
    calls = []
    for block in CALL.findall(text):
        value = parsed_literal(block)
        if isinstance(value, dict) and isinstance(value.get("name"), str):
            arguments = next((value[key] for key in ("arguments", "parameters") if value.get(key) is not None), None)
            identity = identity_of(next((value[key] for key in ("id", "tool_call_id") if value.get(key)), None))
            calls.append(tool_call(identity, value["name"], arguments))
        elif name := NAME.search(block):
            calls.append(tool_call(None, name[1], block))
        else:
            return None
    if not calls:
        return None
    said = CALL.sub("", text).strip()
    return {"role": "assistant", "content": said or None, "tool_calls": calls}


def hermes_replies(text: str) -> list[dict[str, Any]]:
    """The replies in the `<tool_response>` blocks of a text, or the text as one reply."""
    replies = []
    for block in RESPONSE.findall(text):
        value = parsed_literal(block)
        reply: dict[str, Any] = {"role": "tool", "content": block}
        if isinstance(value, dict) and "content" in value and value.keys() <= {"name", "content", "id", "tool_call_id"}:
            reply["content"] = as_text(value["content"])
            if identity := identity_of(value.get("tool_call_id") or value.get("id")):
                reply["tool_call_id"] = identity
            if isinstance(value.get("name"), str):
                reply["name"] = value["name"]
        replies.append(reply)
    return replies or [{"role": "tool", "content": text}]


def react_turn(text: str) -> dict[str, Any] | None:
    """The assistant's turn of a text that ends with an action and its input; None for any other text."""
    match = ACTION.search(text)
    if match is None:
        return None
    value = parsed_literal(match[2])
    arguments = value if isinstance(value, dict) else match[2]
    said = text[: match.start()].strip()
    return {"role": "assistant", "content": said or None, "tool_calls": [tool_call(None, match[1].strip(), arguments)]}


def tools_in(text: str) -> list[Any]:
    """The tools in a system prompt: in `<tools>`, as a list or one a line, or after ToolBench's words."""
    for found in (TOOLS.search(text), APIS.search(text)):
        if found is None:
            continue
        value = parsed_literal(found[1])
        if isinstance(value, dict):
            return [value]
        listed = value if isinstance(value, list) else [parsed_literal(line) for line in found[1].splitlines() if line.strip()]
        if listed and all(isinstance(tool, dict) for tool in listed):
            return listed
    return []


def parsed_literal(text: str) -> Any:
    """The value of a text that is JSON, or as Python writes it; None for any other text."""
    try:
        return parse_json(text)
    except ValueError:
        pass
    if len(text) > 100_000 or text[:1] not in "{[":
        return None
    try:
        value = ast.literal_eval(text)
        check_json(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value
