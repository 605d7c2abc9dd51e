"""Reads sessions of Strands Agents: `session_*/agents/agent_*/messages/message_*.json`, a file a message."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from tracewheel import Place, RawTrace, Reader, Signs, Trace, as_chat, build_trace, text_field, tie_calls

FORMAT = "strands"


def recognises(value: Any) -> bool:
    """Whether this is a message of a session."""
    return (
        isinstance(value, dict)
        and isinstance(value.get("message"), dict)
        and "content" in value["message"]
        and isinstance(value.get("message_id"), int)
        and "created_at" in value
    )


def parts(value: Any) -> list[tuple[str, Any]]:
    """The message; its folder is its conversation."""
    return [("", value)]


def folder(file: str) -> str:
    """The agent's folder of a session, which a message's file lies in."""
    return PurePath(file).parent.as_posix()


def read(values: Any, place: Place) -> Trace:
    """The trace of an agent's messages; of those that were redacted, what the agent sees now.

    Raises:
        InvalidRecord: they cannot be read.
    """
    ordered = sorted(values, key=lambda value: value["message_id"])
    messages = [message for value in ordered for message in as_chat([value.get("redact_message") or value["message"]])]
    names = PurePath(place.file).parts
    named = next((name.removeprefix("session_") for name in names if name.startswith("session_")), None)
    return build_trace(
        FORMAT,
        place,
        RawTrace(tie_calls(messages), session=named, created=text_field(ordered[0], "created_at")),
    )


READERS = (Reader(FORMAT, recognises, read, "group", Signs.NAMED, parts=parts, group_of_file=folder),)
