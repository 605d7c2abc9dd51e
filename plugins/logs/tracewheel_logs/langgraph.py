"""Reads LangGraph's states: snapshots of a thread (`get_state_history`, the server's thread states) and checkpoints.

A thread's snapshots may be on any lines and in any files: the one with the longest conversation is the trace. A state holds
LangChain messages, or chat messages, under `messages`.
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
    as_chat,
    build_trace,
    object_field,
    text_field,
    tie_calls,
)
from tracewheel_logs.langchain import is_conversation, model_of, read_messages

FORMAT = "langgraph"
SNAPSHOT_KEYS = ({"values", "next"}, {"values", "checkpoint"}, {"values", "thread_id"})


def recognises(value: Any) -> bool:
    """Whether this is a snapshot of a state, or a checkpoint."""
    if _is_dumped_snapshot(value):
        return True
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("values"), dict):
        return any(keys <= value.keys() for keys in SNAPSHOT_KEYS)
    return "channel_values" in _checkpoint(value)


def _is_dumped_snapshot(value: Any) -> bool:
    """Whether this is a snapshot that became a list, as a named tuple does in JSON: values, next, config, metadata, …"""
    if not isinstance(value, list) or len(value) < 6:
        return False
    return (
        isinstance(value[0], dict) and isinstance(value[1], list) and isinstance(value[2], dict) and "configurable" in value[2]
    )


def _checkpoint(value: dict[str, Any]) -> dict[str, Any]:
    return value if isinstance(value.get("channel_values"), dict) else object_field(value, "checkpoint")


def parts(value: Any) -> list[tuple[str, Any]]:
    """The snapshot under its thread. Without one it is a trace of its own."""
    if isinstance(value, list):
        names = ("values", "next", "config", "metadata", "created_at", "parent_config")
        value = dict(zip(names, value, strict=False))
    about = _thread(value)
    thread, space = text_field(about, "thread_id"), about.get("checkpoint_ns") or ""
    if thread is None:
        thread = text_field(about, "checkpoint_id") or text_field(_checkpoint(value), "id") or repr(value.get("created_at"))
    return [(f"{thread}|{space}", value)]


def _thread(value: dict[str, Any]) -> dict[str, Any]:
    """Where a snapshot has its thread's id: in its config, in its checkpoint, or itself."""
    holders = (object_field(object_field(value, "config"), "configurable"), object_field(value, "checkpoint"), value)
    return next((holder for holder in holders if "thread_id" in holder), holders[0])


def read(values: Any, place: Place) -> Trace:
    """The trace of a thread.

    Raises:
        InvalidRecord: it cannot be read.
    """
    states = [(_messages(value), value) for value in values]
    messages, latest = max(states, key=lambda state: (len(state[0]), _time(state[1])))
    if not messages:
        raise InvalidRecord("no messages", "no state of the thread has 'messages'")
    state = latest["values"] if isinstance(latest.get("values"), dict) else _checkpoint(latest)["channel_values"]
    metadata = object_field(latest, "metadata")
    configurable = object_field(object_field(latest, "config"), "configurable")
    times = sorted(filter(None, (_time(value) for _, value in states)))
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            read_messages(messages) if is_conversation(messages) else tie_calls(as_chat(messages)),
            session=text_field(_thread(latest), "thread_id"),
            user=text_field(configurable, "user_id") or text_field(metadata, "user_id"),
            created=times[0] if times else None,
            model=model_of(messages),
            info={
                "state": {key: part for key, part in state.items() if key != "messages" and not key.startswith("branch:")},
                "next": latest.get("next"),
                "metadata": {key: part for key, part in metadata.items() if key != "writes"},
                "snapshots": len(values),
            },
        ),
    )


def _messages(value: dict[str, Any]) -> list[Any]:
    state = value["values"] if isinstance(value.get("values"), dict) else _checkpoint(value).get("channel_values")
    messages = state.get("messages") if isinstance(state, dict) else None
    return messages if isinstance(messages, list) else []


def _time(value: dict[str, Any]) -> str:
    return text_field(value, "created_at") or text_field(_checkpoint(value), "ts") or ""


READERS = (Reader(FORMAT, recognises, read, "group", Signs.SHAPE, parts=parts),)
