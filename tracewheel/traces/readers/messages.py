"""Checks conversations: known roles, a reply for each call, content as text, nothing unread.

`check_messages` finds what is wrong; `are_sound` accepts most valid messages quickly. What an agent did wrong is kept: a
call with broken arguments is a failure to learn from, not damage of the log.
"""

from __future__ import annotations

from typing import Any

from orjson import loads

from tracewheel.core.strict_json import LARGEST_INTEGER, parse_json
from tracewheel.traces.quarantine import InvalidRecord
from tracewheel.traces.readers.content import arguments_text
from tracewheel.traces.readers.unread import check_stored

ROLES = ("system", "developer", "user", "assistant", "tool")


def check_messages(messages: list[Any], *, has_start: bool = False) -> list[dict[str, Any]]:
    """Check roles, calls and replies; return the messages with plain text as content.

    A call needs its reply before any other message, except in the last assistant turn: an episode may end with a call.
    Arguments may be any text; see `as_json_text` and `broken_calls`.

    Args:
        messages: The messages of a record.
        has_start: Whether the record holds the starting point of an environment. Then it may end with the user's request: a
            task that nobody has tried yet.

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
        if role == "assistant":
            spoken, open_calls, answered = True, _checked_calls(message.get("tool_calls"), position), set()
        checked.append({**message, "content": checked_text(message.get("content"), position)})
        check_stored(checked[-1], position)
    if not spoken and not (has_start and checked and checked[-1]["role"] == "user"):
        raise InvalidRecord("no assistant turn", "the agent says nothing in this conversation")
    return checked


def without_strays(messages: list[Any]) -> tuple[list[Any], int]:
    """The messages without results of no call, and how many these were.

    A result is left out where each call of the turn before it has its own. Otherwise it may be one of theirs under another
    name, and `check_messages` refuses the conversation.
    """
    kept: list[Any] = []
    waiting: list[int] = []  # places in `kept` of the results that no call of the last turn asked for
    strays: list[int] = []
    open_calls: set[str] = set()
    known: set[str] = set()
    for message in [*messages, None]:
        role = message.get("role") if isinstance(message, dict) else None
        if role != "tool":
            strays += waiting if known and not open_calls else []
            calls = message.get("tool_calls") if isinstance(message, dict) else None
            named = [call.get("id") for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
            known = {name for name in named if isinstance(name, str)}
            open_calls, waiting = set(known), []
        elif isinstance(message.get("tool_call_id"), str) and message["tool_call_id"] in known:
            open_calls.discard(message["tool_call_id"])
        else:
            waiting.append(len(kept))
        kept.append(message)
    if not strays:
        return messages, 0
    return [message for place, message in enumerate(messages) if place not in strays], len(strays)


def as_json_text(messages: list[Any]) -> tuple[list[Any], int]:
    """The messages with the arguments of calls as text, and how many were none: objects, or nothing at all, which is `{}`."""
    changed, renewed = 0, []
    for message in messages:
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        if isinstance(calls, list) and any(map(_lacks_text, calls)):
            changed += sum(map(_lacks_text, calls))
            message = {**message, "tool_calls": [_with_text(call) if _lacks_text(call) else call for call in calls]}
        renewed.append(message)
    return renewed, changed


def _lacks_text(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return False
    arguments = function.get("arguments")
    return not isinstance(arguments, str) or not arguments.strip()


def _with_text(call: dict[str, Any]) -> dict[str, Any]:
    arguments = call["function"].get("arguments")
    text = "{}" if isinstance(arguments, str) else arguments_text(arguments)
    return {**call, "function": {**call["function"], "arguments": text}}


def broken_calls(messages: list[dict[str, Any]]) -> int:
    """How many calls have arguments that are not the JSON text of an object."""
    calls = [call for message in messages for call in message.get("tool_calls") or []]
    return sum(read_arguments(call["function"]["arguments"]) is None for call in calls)


def read_arguments(text: str) -> dict[str, Any] | None:
    """A call's arguments; None where they are not the JSON text of an object."""
    try:
        arguments = parse_json(text)
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None


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
        if call["id"] in ids:
            raise InvalidRecord("doubled call id", f"message {position}: two calls have the id {call['id']!r:.80}")
        ids.add(call["id"])
    return ids


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
            elif size != 2 or (role != "user" and role != "system"):
                return False
    except (KeyError, TypeError, AttributeError, ValueError):
        return False
    return spoken


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
