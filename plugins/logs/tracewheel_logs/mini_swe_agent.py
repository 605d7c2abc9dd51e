"""Reads runs of mini-swe-agent: `{"info", "messages"}`, or the bare list of messages.

Commands are code blocks in assistant messages and their output is in user messages; they stay there, as the model wrote
and saw them. Newer versions call a tool, so that the messages have `tool_calls`. What version 2 adds at the end of a run,
with the role `exit`, is not sent to the model.
"""

from __future__ import annotations

from typing import Any

from tracewheel import (
    Place,
    RawTrace,
    Reader,
    Signs,
    Trace,
    build_trace,
    ending,
    list_field,
    message_list,
    object_field,
    openai_messages,
    reward_field,
    text_field,
    with_ending,
)
from tracewheel_logs.values import time_text

FORMAT = "mini_swe_agent"
KEYS = {"exit_status", "submission", "mini_version", "model_stats"}
SIGNS = ("<returncode>", "```mswea_", "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT")
SAID = ("role", "content", "tool_calls", "tool_call_id", "name", "reasoning_content", "reasoning")


def recognises(value: Any) -> bool:
    """Whether this is one run."""
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    layout, info = value.get("trajectory_format"), value.get("info")
    return (isinstance(layout, str) and layout.startswith("mini-swe-agent")) or (
        isinstance(info, dict) and bool(KEYS & info.keys())
    )


def read(value: Any, place: Place) -> Trace:
    """The trace of one run.

    Raises:
        InvalidRecord: it cannot be read.
    """
    info = object_field(value, "info")
    model = object_field(object_field(info, "config"), "model")
    return _trace(message_list(value), place, info, text_field(value, "instance_id"), text_field(model, "model_name"), value)


def is_message(value: Any) -> bool:
    """Whether this is an element of a bare list of messages."""
    return isinstance(value, dict) and isinstance(value.get("role"), str) and "content" in value


def read_list(value: Any, place: Place) -> Trace:
    """The trace of a bare list of messages; without a sign of mini-swe-agent it is read as OpenAI's.

    Raises:
        InvalidRecord: it cannot be read.
    """
    if any(isinstance(message, dict) and _has_sign(message.get("content")) for message in value):
        return _trace(value, place, {}, None, None, {})
    return build_trace("openai", place, RawTrace(openai_messages(value), tools=[]))


def _has_sign(content: Any) -> bool:
    return isinstance(content, str) and any(sign in content for sign in SIGNS)


def _said(message: dict[str, Any]) -> dict[str, Any]:
    """What a message says; what the provider told of it lies beside that."""
    response = object_field(object_field(message, "extra"), "response")
    said = {key: message[key] for key in SAID if key in message}
    return with_ending([said], ending(*list_field(response, "choices")[:1]))[0]


def _trace(
    messages: list[Any], place: Place, info: dict[str, Any], task: str | None, model: str | None, value: dict[str, Any]
) -> Trace:
    sent = [message for message in messages if not (isinstance(message, dict) and message.get("role") == "exit")]
    said = [_said(message) if isinstance(message, dict) else message for message in sent]
    times = [object_field(message, "extra").get("timestamp") for message in sent if isinstance(message, dict)]
    known = [moment for moment in times if isinstance(moment, int | float)]
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            openai_messages(said),
            model=model,
            created=time_text(int(min(known) * 1e9)) if known else None,
            outcome=reward_field(value, "reward"),
            task=task,
            info=info,
        ),
    )


READER = Reader(FORMAT, recognises, read, signs=Signs.NAMED)
READERS = (READER, Reader(FORMAT, is_message, read_list, "list", Signs.GENERAL))
