"""Reads ChatGPT's data export: conversations as trees of messages (`mapping`), of which the branch to `current_node` is read.

What a tool did stands as its reply: the agent's message to a tool (`recipient`) is a call with its text as input. Messages
that nobody sees (`is_visually_hidden_from_conversation`) are of the application, not of the conversation.
"""

from __future__ import annotations

from typing import Any

from tracewheel import (
    InvalidRecord,
    Place,
    RawTrace,
    Reader,
    Signs,
    Trace,
    as_text,
    build_trace,
    list_field,
    object_field,
    read_parts,
    text_field,
)
from tracewheel_logs.dialogue import Dialogue, unreadable

FORMAT = "chatgpt"
TEXTS = {"text", "multimodal_text", None}
OF_TOOLS = {"code", "execution_output", "tether_quote", "tether_browsing_display", "system_error", "computer_output"}


def recognises(value: Any) -> bool:
    """Whether this is one conversation."""
    nodes = value.get("mapping") if isinstance(value, dict) else None
    return (
        isinstance(nodes, dict) and bool(nodes) and all(isinstance(node, dict) and "message" in node for node in nodes.values())
    )


def read(value: Any, place: Place) -> Trace:
    """The trace of one conversation.

    Raises:
        InvalidRecord: it cannot be read.
    """
    dialogue, models = Dialogue(), []
    for message in _branch(value):
        role = object_field(message, "author").get("role")
        metadata = object_field(message, "metadata")
        if metadata.get("is_visually_hidden_from_conversation") or metadata.get("is_user_system_message"):
            continue
        models += [metadata["model_slug"]] if isinstance(metadata.get("model_slug"), str) else []
        content = object_field(message, "content")
        if content.get("content_type") in ("thoughts", "reasoning_recap"):
            thoughts = [as_text(thought.get("content")) for thought in list_field(content, "thoughts")]
            dialogue.thought("\n".join(thoughts))
            continue
        text = _text(content)
        if role == "tool":
            dialogue.replied(None, text_field(object_field(message, "author"), "name"), text)
        elif role == "assistant" and message.get("recipient") not in (None, "all"):
            dialogue.called(message.get("id"), message["recipient"], {"input": text})
        elif role == "assistant":
            dialogue.text(text)
            dialogue.ended({"finish_reason": object_field(metadata, "finish_details").get("type")})
        elif text or role != "system":
            dialogue.said(as_text(role), text)
    identity = text_field(value, "conversation_id", "id")
    info = {key: value.get(key) for key in ("title", "update_time", "gizmo_id")}
    created = value.get("create_time")
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            dialogue.messages(), id=identity, session=identity, model=models[-1] if models else None,
            info=info | {"create_time": created},
        ),
    )  # fmt: skip


def _branch(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages on the way to the current node; without one, to the last node that nothing follows."""
    nodes: dict[str, dict[str, Any]] = value["mapping"]
    parents = {node.get("parent") for node in nodes.values()}
    at = value.get("current_node") or next((name for name in reversed(nodes) if name not in parents), None)
    found: list[dict[str, Any]] = []
    passed: set[str] = set()
    while isinstance(at, str) and at in nodes and at not in passed:
        passed.add(at)
        message = nodes[at].get("message")
        found += [message] if isinstance(message, dict) else []
        at = nodes[at].get("parent")
    return found[::-1]


def _text(content: dict[str, Any]) -> str:
    kind = content.get("content_type")
    if kind in OF_TOOLS:
        return as_text(next((content[key] for key in ("text", "result") if content.get(key)), ""))
    if kind not in TEXTS:
        raise unreadable("content", kind)
    parts = [
        {**part, "type": part["content_type"]} if isinstance(part, dict) and isinstance(part.get("content_type"), str) else part
        for part in list_field(content, "parts")
    ]
    if any(part is None for part in parts):
        raise InvalidRecord("content is not text", "a part of a message is null")
    return read_parts(parts, "\n").text or ""


READERS = (Reader(FORMAT, recognises, read, signs=Signs.NAMED),)
