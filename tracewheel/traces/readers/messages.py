"""Checks conversations: known roles in order, a reply for each call, content as text.

`check_messages` finds what is wrong; `are_sound` accepts most valid messages quickly.
"""

from __future__ import annotations

from typing import Any

from orjson import loads

from tracewheel.core.strict_json import LARGEST_INTEGER, parse_json
from tracewheel.traces.quarantine import InvalidRecord

ROLES = ("system", "developer", "user", "assistant", "tool")


def check_messages(messages: list[Any]) -> list[dict[str, Any]]:
    """Check roles, calls and replies; return the messages with plain text as content.

    A call needs its reply before any other message, except in the last assistant turn: an episode may end with a call. A
    system message comes before the first assistant turn, and the first message is not the assistant's.

    Raises:
        InvalidRecord: the messages break one of these rules.
    """
    checked: list[dict[str, Any]] = []
    open_calls: set[str] = set()
    answered: set[str] = set()
    spoken = False
    for position, message in enumerate(messages):
        if not isinstance(message, dict):
            raise InvalidRecord("message unreadable", f"message {position} is not an object")
        role = message.get("role")
        if role not in ROLES:
            raise InvalidRecord("unknown role", f"message {position} has the role {role!r:.40}")
        if role == "tool":
            _close(message.get("tool_call_id"), open_calls, answered, position)
        elif open_calls:
            raise InvalidRecord("call without a reply", f"{min(open_calls)!r} has none when message {position} follows")
        if role == "system" and spoken:
            raise InvalidRecord("role out of order", f"message {position} is a system message after the agent has spoken")
        if role == "assistant":
            if not checked:
                raise InvalidRecord("role out of order", "the agent speaks first")
            spoken, open_calls, answered = True, _checked_calls(message.get("tool_calls"), position), set()
        checked.append({**message, "content": checked_text(message.get("content"), position)})
    if not spoken:
        raise InvalidRecord("no assistant turn", "the agent says nothing in this conversation")
    return checked


def _close(call_id: Any, open_calls: set[str], answered: set[str], position: int) -> None:
    if not isinstance(call_id, str) or call_id not in open_calls | answered:
        raise InvalidRecord("tool reply without a call", f"message {position} replies to {call_id!r:.80}")
    if call_id in answered:
        raise InvalidRecord("doubled call id", f"message {position} replies to {call_id!r:.80}, which has a reply")
    open_calls.remove(call_id)
    answered.add(call_id)


def _checked_calls(calls: Any, position: int) -> set[str]:
    """The ids of an assistant turn's calls."""
    if calls is None:
        return set()
    if not isinstance(calls, list):
        raise InvalidRecord("tool calls unreadable", f"message {position}: 'tool_calls' is not a list")
    ids: set[str] = set()
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not isinstance(call.get("id"), str):
            raise InvalidRecord("tool calls unreadable", f"message {position}: a call needs an id and a function with a name")
        check_arguments(function.get("arguments"), f"message {position}, call {call['id']!r:.80}")
        if call["id"] in ids:
            raise InvalidRecord("doubled call id", f"message {position}: two calls have the id {call['id']!r:.80}")
        ids.add(call["id"])
    return ids


def check_arguments(text: Any, where: str) -> None:
    """Check that a call's arguments are the JSON text of an object.

    Raises:
        InvalidRecord: they are not.
    """
    try:
        arguments = parse_json(text) if isinstance(text, str) else None
    except ValueError as error:
        raise InvalidRecord("arguments are not JSON", f"{where}: {error}") from error
    if not isinstance(arguments, dict):
        raise InvalidRecord("arguments are not JSON", f"{where}: no JSON text of an object")


def checked_text(content: Any, position: int) -> str | None:
    """The content as text: text parts are joined.

    Raises:
        InvalidRecord: it has parts that are not text.
    """
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidRecord("content is not text", f"message {position}: content is a {type(content).__name__}")
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise InvalidRecord("content is not text", f"message {position}: a part of type {kind!r:.40}")
        texts.append(part["text"])
    return "".join(texts)


def are_sound(messages: list[Any]) -> bool:
    """Whether `check_messages` is certain to return these messages, as parsed by orjson, unchanged.

    False only means that `check_messages` is needed, for example for messages with extra keys. Most records pass here, so
    this loop is most of the cost of reading besides parsing; it avoids function calls.
    """
    open_calls: set[str] = set()
    spoken = False
    try:
        for message in messages:
            role, content, size = message["role"], message["content"], len(message)
            if content.__class__ is not str and content is not None:
                return False
            if role == "tool":
                open_calls.remove(message["tool_call_id"])
                if size != 3 and (size != 4 or message["name"].__class__ is not str):
                    return False
            elif open_calls:
                return False
            elif role == "assistant":
                spoken = True
                if size == 2:
                    continue
                for call in message["tool_calls"]:
                    identity, function = call["id"], call["function"]
                    text = function["arguments"]
                    if size != 3 or len(call) != 3 or len(function) != 2 or identity in open_calls or text.__class__ is not str:
                        return False
                    if (
                        identity.__class__ is not str
                        or function["name"].__class__ is not str
                        or call["type"].__class__ is not str
                    ):
                        return False
                    open_calls.add(identity)
                    arguments = loads(text)
                    if arguments.__class__ is not dict:
                        return False
                    for value in arguments.values():
                        if value.__class__ is not str and not is_strict(value):
                            return False
            elif size != 2 or (role != "user" and (role != "system" or spoken)):
                return False
    except (KeyError, TypeError, AttributeError, ValueError):
        return False
    return spoken and messages[0]["role"] != "assistant"


def is_strict(value: Any) -> bool:
    """Whether a value parsed by orjson is certain to keep the rules of `strict_json`.

    orjson rounds too large integers to floats, so large floats are not certain. The depth limit leaves room for the
    containers around the value.
    """
    if value.__class__ is float:
        return abs(value) < LARGEST_INTEGER
    if value.__class__ not in (dict, list):
        return value.__class__ is not int or abs(value) < LARGEST_INTEGER
    pending, depth = [value], 0
    while pending:
        depth += 1
        inner: list[Any] = []
        for node in pending:
            for part in node.values() if node.__class__ is dict else node:
                kind = part.__class__
                if kind is dict or kind is list:
                    inner.append(part)
                elif (kind is float or kind is int) and abs(part) >= LARGEST_INTEGER:
                    return False
        if depth > 48:
            return False
        pending = inner
    return True
