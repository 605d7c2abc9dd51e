"""Reads messages of the Vercel AI SDK, versions 4 to 6: those of its models and those of its UI.

In a UI message, one message of the assistant holds several turns: text, calls and their results are parts, and `step-start`
begins a turn. A call with its result is one part (`tool-NAME`, `dynamic-tool`, before version 5 `tool-invocation`).
"""

from __future__ import annotations

from typing import Any

from tracewheel import (
    InvalidRecord,
    Place,
    RawTrace,
    Reader,
    Trace,
    as_tools,
    build_trace,
    list_field,
    message_list,
    object_field,
)
from tracewheel_logs.dialogue import Dialogue, unreadable

FORMAT = "vercel_ai"
ROLES = ("system", "user", "assistant", "data")
# Shown to a person only: the model neither wrote nor read them.
SHOWN = {"source", "source-url", "source-document", "tool-approval-request", "tool-approval-response"}
TOOL_PARTS = {"tool-call", "tool-result", "tool-error", "tool-invocation", "dynamic-tool"}
DONE = ("output-available", "output-error", "output-denied", "result")  # a tuple, because a log's value may be no text
READ = {"messages", "response", "system", "tools"}


def recognises(value: Any) -> bool:
    """Whether this is an object with such messages."""
    messages = value.get("messages") if isinstance(value, dict) else None
    return isinstance(messages, list) and is_whole(messages)


def is_message(value: Any) -> bool:
    """Whether this may be a message of the SDK."""
    if not isinstance(value, dict) or value.get("role") not in (*ROLES, "tool"):
        return False
    return isinstance(value.get("parts"), list) or isinstance(value.get("content"), str | list)


def is_whole(values: list[Any]) -> bool:
    """Whether a list is one of the SDK's messages: one of them has parts as only the SDK writes them."""
    return any(map(_has_sign, values)) and all(map(is_message, values))


def _has_sign(message: Any) -> bool:
    if not isinstance(message, dict):
        return False
    if isinstance(message.get("toolInvocations"), list):
        return True
    parts = message.get("parts")
    if isinstance(parts, list) and "content" not in message:
        # OpenTelemetry's parts have their text under `content`.
        return any(_is_ui_part(part) for part in parts)
    parts = parts if isinstance(parts, list) else message.get("content")
    return isinstance(parts, list) and any(_names_tool(part) for part in parts)


def _is_ui_part(part: Any) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    return isinstance(kind, str) and (kind == "step-start" or isinstance(part.get("text"), str) or _names_tool(part))


def _names_tool(part: Any) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        return False
    return "toolInvocation" in part or ("toolCallId" in part and (kind in TOOL_PARTS or kind.startswith("tool-")))


def read(value: Any, place: Place) -> Trace:
    """The trace of one record.

    Raises:
        InvalidRecord: it cannot be read.
    """
    messages = [*message_list(value), *list_field(object_field(value, "response"), "messages")]
    return _trace(messages, value, place)


def read_list(value: Any, place: Place) -> Trace:
    """The trace of a bare list of messages.

    Raises:
        InvalidRecord: it cannot be read.
    """
    return _trace(value, {}, place)


def _trace(messages: list[Any], value: dict[str, Any], place: Place) -> Trace:
    dialogue = Dialogue()
    if isinstance(value.get("system"), str):
        dialogue.said("system", value["system"])
    for position, message in enumerate(messages):
        _read_message(message, position, dialogue)
    about = object_field(messages[-1], "metadata") | object_field(messages[0], "metadata")
    created = next((message["createdAt"] for message in messages if isinstance(message.get("createdAt"), str)), None)
    model = about.get("model") if isinstance(about.get("model"), str) else None
    info = {key: part for key, part in value.items() if key not in READ} | {"message_metadata": about}
    found = RawTrace(dialogue.messages(), tools=as_tools(value.get("tools")), created=created, model=model, info=info)
    return build_trace(FORMAT, place, found)


def _read_message(message: Any, position: int, dialogue: Dialogue) -> None:
    if not is_message(message):
        raise InvalidRecord("message unreadable", f"message {position} has no role, or neither 'parts' nor 'content'")
    role = message["role"]
    if role == "data":
        return
    parts = message["parts"] if isinstance(message.get("parts"), list) else message["content"]
    if isinstance(parts, str):
        parts = [{"type": "text", "text": parts}]
    if role in ("system", "user"):
        dialogue.said(role, "".join(_text(part) for part in parts))
        return
    dialogue.end_turn()
    if isinstance(message.get("reasoning"), str) and not isinstance(message.get("parts"), list):
        dialogue.thought(message["reasoning"])
    steps: list[list[dict[str, Any]]] = [[]]
    for part in parts:
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise InvalidRecord("message unreadable", f"message {position} has a part without a type")
        step = (part.get("toolInvocation") or {}).get("step") if part["type"] == "tool-invocation" else None
        if part["type"] == "step-start" or (step is not None and _step_of(steps[-1]) not in (None, step)):
            steps.append([])
        steps[-1].append(part)
    if not isinstance(message.get("parts"), list):
        steps[-1] += [{"type": "tool-invocation", "toolInvocation": one} for one in list_field(message, "toolInvocations")]
    for parts_of_step in steps:
        _read_step(parts_of_step, dialogue)
    dialogue.ended(message, message.get("metadata"))


def _step_of(parts: list[dict[str, Any]]) -> Any:
    return next((part["toolInvocation"].get("step") for part in parts if part["type"] == "tool-invocation"), None)


def _read_step(parts: list[dict[str, Any]], dialogue: Dialogue) -> None:
    """Read one turn: its text and calls, then the results, even if each result lies beside its call."""
    replies: list[tuple[Any, Any, Any]] = []
    for part in parts:
        kind = part["type"]
        if replies and kind in ("text", "reasoning") and part.get("text"):
            # Text after results, without a step's beginning: it answers them.
            _reply(replies, dialogue)
        if kind == "text":
            dialogue.text(_text(part))
        elif kind == "reasoning":
            details = [one.get("text") for one in list_field(part, "details") if isinstance(one, dict)]
            texts = [part.get("text"), part.get("reasoning"), *details]
            dialogue.thought(next((text for text in texts if isinstance(text, str)), ""))
        elif kind == "redacted-reasoning" or kind == "step-start" or kind in SHOWN or kind.startswith("data-"):
            continue
        elif kind == "tool-call":
            dialogue.called(part.get("toolCallId"), part.get("toolName"), part.get("input", part.get("args")))
        elif kind in ("tool-result", "tool-error"):
            output = part.get("output", part.get("result", part.get("error")))
            replies.append((part.get("toolCallId"), part.get("toolName"), _output(output)))
        elif "toolCallId" in part or kind == "tool-invocation":
            _read_invocation(part, dialogue, replies)
        else:
            raise unreadable("a part", kind)
    _reply(replies, dialogue)


def _read_invocation(part: dict[str, Any], dialogue: Dialogue, replies: list[tuple[Any, Any, Any]]) -> None:
    tool = object_field(part, "toolInvocation") or part
    state = tool.get("state")
    name = tool.get("toolName") or part["type"].removeprefix("tool-")
    given = next((tool[key] for key in ("input", "args", "rawInput") if tool.get(key) is not None), None)
    if state in ("input-streaming", "partial-call") and given is None:
        return
    dialogue.called(tool.get("toolCallId"), name, given)
    denied = object_field(tool, "approval").get("reason") or "Tool call execution denied."
    if state == "output-error":
        replies.append((tool.get("toolCallId"), name, tool.get("errorText")))
    elif state == "output-denied" or (
        state == "approval-responded" and object_field(tool, "approval").get("approved") is False
    ):
        replies.append((tool.get("toolCallId"), name, denied))
    elif state in DONE:
        replies.append((tool.get("toolCallId"), name, tool.get("output", tool.get("result"))))


def _reply(replies: list[tuple[Any, Any, Any]], dialogue: Dialogue) -> None:
    for identity, name, content in replies:
        dialogue.replied(identity, name, content)
    replies.clear()


def _text(part: Any) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    if isinstance(kind, str) and kind.startswith("data-"):
        return ""
    raise unreadable("a part", kind)


def _output(output: Any) -> Any:
    """A result as the model reads it: since version 5 it has a type (`text`, `json`, `error-text`, `content`, …)."""
    kind = output.get("type") if isinstance(output, dict) else None
    if kind in ("text", "json", "error-text", "error-json"):
        return output.get("value")
    if kind == "execution-denied":
        return output.get("reason") or "Tool call execution denied."
    if kind == "content" and isinstance(output.get("value"), list):
        return "".join(_text(part) for part in output["value"])
    return output


READERS = (Reader(FORMAT, recognises, read), Reader(FORMAT, is_message, read_list, "list", is_whole=is_whole))
