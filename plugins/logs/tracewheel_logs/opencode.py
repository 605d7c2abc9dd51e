"""Reads sessions of opencode: `opencode export`, and lists of its API's messages with their parts.

A message of the agent is a list of parts; a step (one response of the model) begins with `step-start`. The results stand
with their calls. A call that was interrupted has the error as its result, which the model sees.
"""

from __future__ import annotations

from typing import Any

from tracewheel import (
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
from tracewheel_logs.values import time_text

FORMAT = "opencode"
SILENT = {"step-start", "step-finish", "snapshot", "patch", "agent", "retry", "compaction", "subtask"}


def recognises(value: Any) -> bool:
    """Whether this is one session."""
    return isinstance(value, dict) and isinstance(value.get("info"), dict) and _are_messages(value.get("messages"))


def is_message(value: Any) -> bool:
    """Whether this is a message with its parts."""
    info = value.get("info") if isinstance(value, dict) else None
    return isinstance(info, dict) and info.get("role") in ("user", "assistant") and isinstance(value.get("parts"), list)


def _are_messages(messages: Any) -> bool:
    return isinstance(messages, list) and bool(messages) and all(map(is_message, messages))


def read(value: Any, place: Place) -> Trace:
    """The trace of one session.

    Raises:
        InvalidRecord: it cannot be read.
    """
    session, dialogue = value["info"], Dialogue()
    models, errors = [], 0
    for message in value["messages"]:
        info = message["info"]
        if info["role"] == "user":
            parts = [part for part in message["parts"] if not _is_silent(part)]
            dialogue.said("user", read_parts(parts, "\n").text or "")
            continue
        models.append(text_field(info, "modelID"))
        errors += bool(info.get("error"))
        dialogue.end_turn()
        _respond(message["parts"], dialogue)
        dialogue.ended({"finish_reason": info.get("finish")}, {"status": "failed" if info.get("error") else None})
    created = object_field(session, "time").get("created")
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            dialogue.messages(),
            id=text_field(session, "id", "sessionID"),
            session=text_field(session, "id", "sessionID"),
            created=time_text(created * 1_000_000) if isinstance(created, int) else None,
            model=next(filter(None, models), None),
            info={key: session.get(key) for key in ("title", "version", "directory", "parentID")}
            | {"failed_turns": errors or None},
        ),
    )


def _is_silent(part: dict[str, Any]) -> bool:
    return part.get("type") in SILENT or bool(part.get("ignored"))


def _respond(parts: list[dict[str, Any]], dialogue: Dialogue) -> None:
    """What the agent said and called, step by step: the results of a step follow its calls."""
    waiting: list[tuple[Any, ...]] = []

    def reply() -> None:
        for one in waiting:
            dialogue.replied(*one)
        waiting.clear()

    for part in parts:
        kind = part.get("type")
        if kind == "step-start":
            reply()
            dialogue.end_turn()
        elif kind == "text" and not part.get("ignored"):
            if waiting:
                reply()
            dialogue.text(as_text(part.get("text")))
        elif kind == "reasoning":
            if waiting:
                reply()
            dialogue.thought(as_text(part.get("text")))
        elif kind == "tool":
            state = object_field(part, "state")
            dialogue.called(part.get("callID"), part.get("tool"), state.get("input"))
            if (result := next((state[key] for key in ("output", "error") if state.get(key) is not None), None)) is not None:
                waiting.append((part.get("callID"), part.get("tool"), result))
        elif not _is_silent(part):
            if kind != "file":
                raise unreadable("a part", kind)
            dialogue.text(read_parts([part]).text or "")
    reply()


def read_list(value: Any, place: Place) -> Trace:
    """The trace of a list of messages.

    Raises:
        InvalidRecord: it cannot be read.
    """
    return read(
        {
            "info": {"sessionID": next((m["info"].get("sessionID") for m in list_field({"m": value}, "m")), None)},
            "messages": value,
        },
        place,
    )


READERS = (
    Reader(FORMAT, recognises, read, signs=Signs.NAMED),
    Reader(FORMAT, is_message, read_list, "list", Signs.NAMED),
)
