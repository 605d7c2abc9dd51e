"""Reads sessions of Gemini CLI: `~/.gemini/tmp/*/chats/session-*`, one JSON object or, since 0.39, a line per event.

A response of the model has its calls with their results. In files of lines a message is written again as it grows, the last
version counts; a rewind leaves the part that was undone as a branch, which is a trace of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tracewheel import (
    Part,
    Place,
    RawTrace,
    Reader,
    SessionLine,
    Signs,
    Trace,
    as_text,
    build_trace,
    identity_of,
    list_field,
    object_field,
    read_parts,
    text_field,
    tool_call,
)

FORMAT = "gemini_cli"
UNSEEN = {"info", "error", "warning", "about", "help", "stats", "model_stats", "tool_stats", "quit", "compression"}
AGENT = {"gemini", "model"}
SESSION = {"sessionId", "projectHash", "startTime"}


class _Conversation(NamedTuple):
    session: dict[str, Any]
    messages: list[dict[str, Any]]
    number: int


def recognises(value: Any) -> bool:
    """Whether this is a session in one object."""
    messages = value.get("messages") if isinstance(value, dict) else None
    if not isinstance(messages, list) or "sessionId" not in value:
        return False
    kinds = UNSEEN | AGENT | {"user"}
    return value.keys() >= SESSION or all(
        isinstance(one, dict) and one.get("type") in kinds and "content" in one and "role" not in one for one in messages
    )


def recognises_line(value: Any) -> bool:
    """Whether this is the first line of a session in lines."""
    return isinstance(value, dict) and value.keys() >= SESSION and "messages" not in value


def continues(value: Any) -> bool:
    """Whether a line of a session's file belongs to it: a message, or a change."""
    return isinstance(value, dict) and (bool({"$set", "$rewindTo"} & value.keys()) or {"id", "type"} <= value.keys())


def split(lines: Sequence[SessionLine]) -> Iterator[Part]:
    """The conversations of a session in lines."""
    session: dict[str, Any] = {}
    ended: list[list[dict[str, Any]]] = []
    messages: dict[str, dict[str, Any]] = {}
    for line in lines:
        value = line.value
        if "$rewindTo" in value:
            identities = list(messages)
            if value["$rewindTo"] in messages:
                ended.append(list(messages.values()))
                for identity in identities[identities.index(value["$rewindTo"]) :]:
                    del messages[identity]
        elif "$set" in value:
            changed = dict(object_field(value, "$set"))
            replaced = changed.pop("messages", None)
            session |= changed
            if isinstance(replaced, list):
                messages = {str(message.get("id")): message for message in replaced if isinstance(message, dict)}
        elif recognises_line(value):
            session |= value
        else:
            messages[str(value.get("id"))] = value
    for number, said in enumerate((*ended, list(messages.values()))):
        if any(message.get("type") in AGENT for message in said):
            yield Part(_Conversation(session, said, number), lines[0].line, said)


def read(value: Any, place: Place) -> Trace:
    """The trace of a session in one object.

    Raises:
        InvalidRecord: it cannot be read.
    """
    return read_conversation(_Conversation(value, value["messages"], 0), place)


def read_conversation(value: Any, place: Place) -> Trace:
    """The trace of one conversation of a session.

    Raises:
        InvalidRecord: it cannot be read.
    """
    conversation: _Conversation = value
    session = conversation.session
    messages: list[dict[str, Any]] = []
    models: list[str] = []
    usage: dict[str, int] = {}
    for message in conversation.messages:
        if message.get("type") in UNSEEN:
            continue
        messages += _messages_of(message)
        if isinstance(message.get("model"), str):
            models.append(message["model"])
        for key, count in object_field(message, "tokens").items():
            if isinstance(count, int):
                usage[key] = usage.get(key, 0) + count
    identity = text_field(session, "sessionId")
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            messages,
            id=f"{identity}/{conversation.number}" if identity and conversation.number else identity,
            session=identity,
            created=text_field(session, "startTime"),
            model=models[0] if models else None,
            info={key: session.get(key) for key in ("projectHash", "lastUpdated", "summary", "kind", "directories")}
            | {"usage": {key: count for key, count in usage.items() if count}},
        ),
    )


def _messages_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    text = read_parts(message.get("content")).text
    if message.get("type") == "user":
        return [{"role": "user", "content": text or ""}]
    if message.get("type") not in AGENT:
        return [{"role": message.get("type"), "content": text}]
    calls = [call for call in list_field(message, "toolCalls") if isinstance(call, dict)]
    turn: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
    if calls:
        turn["tool_calls"] = [tool_call(identity_of(call.get("id")), call.get("name"), call.get("args")) for call in calls]
    thoughts = [thought for thought in list_field(message, "thoughts") if isinstance(thought, dict)]
    if thoughts:
        turn["reasoning"] = "\n".join(f"{thought.get('subject')}: {thought.get('description')}" for thought in thoughts)
    replies = [
        {"role": "tool", "tool_call_id": identity_of(call.get("id")), "name": call.get("name"), "content": _result(call)}
        for call in calls
        if call.get("result") is not None
    ]
    return [turn, *replies]


def _result(call: dict[str, Any]) -> str:
    """What the model saw of a call's result: the response's only field, or all of them as JSON."""
    result = call["result"]
    texts = []
    for part in result if isinstance(result, list) else [result]:
        if isinstance(part, dict) and isinstance(part.get("functionResponse"), dict):
            response = part["functionResponse"].get("response")
            only = next(iter(response.values())) if isinstance(response, dict) and len(response) == 1 else response
            texts.append(as_text(only))
        else:
            texts.append(read_parts(part).text or "")
    return "\n".join(texts)


READERS = (
    Reader(FORMAT, recognises, read, signs=Signs.NAMED),
    Reader(FORMAT, recognises_line, read_conversation, "lines", split=split, continues=continues),
)
