"""Reads runs of SWE-agent (`.traj`): the `history` that the model saw, and the run's `info`.

With function calling the history has `tool_calls`; otherwise thoughts and commands are plain text and stay so.
Demonstrations in the history are left out, and counted in `info`. Task and model are in the replay's settings; without these,
a run's file is named after its task.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from tracewheel import (
    Place,
    RawTrace,
    Reader,
    Trace,
    build_trace,
    message_list,
    object_field,
    openai_messages,
    parsed_json,
    reward_field,
    text_field,
)

FORMAT = "sweagent"
SUFFIX = ".traj"


def recognises(value: Any) -> bool:
    """Whether this is one run."""
    return isinstance(value, dict) and isinstance(value.get("trajectory"), list) and isinstance(value.get("history"), list)


def read(value: Any, place: Place) -> Trace:
    """The trace of one run.

    Raises:
        InvalidRecord: it cannot be read.
    """
    history = message_list(value, "history")
    seen = [message for message in history if not (isinstance(message, dict) and message.get("is_demo"))]
    info = dict(object_field(value, "info"))
    info |= {
        "environment": value.get("environment"),
        "left_out": {"demonstration messages": len(history) - len(seen)} if len(history) > len(seen) else None,
    }
    replayed = parsed_json(value.get("replay_config"))
    settings = replayed if isinstance(replayed, dict) else {}
    if settings:
        info["replay_config"] = value["replay_config"]
    named = text_field(object_field(settings, "problem_statement"), "id")
    by_file = PurePosixPath(place.file).stem if place.file.endswith(SUFFIX) else None
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            openai_messages([_message(message) for message in seen]),
            id=text_field(value, "id"),
            outcome=reward_field(value, "reward"),
            model=text_field(object_field(object_field(settings, "agent"), "model"), "name"),
            task=text_field(value, "instance_id") or named or by_file,
            info=info,
        ),
    )


def _message(message: Any) -> Any:
    """A message without the history's other fields, such as the parsed command and the agent's name."""
    if not isinstance(message, dict):
        return message
    said = {key: message[key] for key in ("role", "content", "tool_calls", "tool_call_id", "name") if key in message}
    replied = message.get("tool_call_ids")
    if isinstance(replied, list) and replied and "tool_call_id" not in said:
        said["tool_call_id"] = replied[0]
    if isinstance(message.get("thinking_blocks"), list):
        blocks = [block["thinking"] for block in message["thinking_blocks"] if isinstance(block, dict) and "thinking" in block]
        said |= {"reasoning": "".join(map(str, blocks))} if blocks else {}
    return said


READERS = (Reader(FORMAT, recognises, read),)
