"""Reads results of tau-bench: a list of runs, each with its conversation, reward and task.

Source of the format: Yao et al., "tau-bench: A Benchmark for Tool-Agent-User Interaction in Real-World Domains",
arXiv 2406.12045. The runs of one `task_id` are trials of one task. Its few-shot files hold conversations as text without
the agent's calls, so that only those without calls can be read.
"""

from __future__ import annotations

import re
from typing import Any

from tracewheel import (
    InvalidRecord,
    Place,
    RawTrace,
    Reader,
    Signs,
    Trace,
    build_trace,
    message_list,
    object_field,
    openai_messages,
    reward_field,
    text_field,
)

FORMAT = "tau_bench"
DISPLAY = "messages_display"
SPEAKER = re.compile(r"^(system|user|assistant|tool): ", re.MULTILINE)


def recognises(value: Any) -> bool:
    """Whether this is one run."""
    return isinstance(value, dict) and isinstance(value.get("traj"), list) and "task_id" in value


def read(value: Any, place: Place) -> Trace:
    """The trace of one run; `info` has the task, the trial and the details of the reward.

    Raises:
        InvalidRecord: it cannot be read.
    """
    info = object_field(value, "info")
    return build_trace(
        FORMAT,
        place,
        RawTrace(
            openai_messages(message_list(value, "traj")),
            user=text_field(object_field(info, "task"), "user_id"),
            outcome=reward_field(value, "reward"),
            task=text_field(value, "task_id"),
            info={**info, **{key: value[key] for key in value if key not in ("traj", "task_id", "reward", "info")}},
        ),
    )


def recognises_display(value: Any) -> bool:
    """Whether this is a line of a few-shot file."""
    return isinstance(value, dict) and isinstance(value.get(DISPLAY), str)


def read_display(value: Any, place: Place) -> Trace:
    """The trace of a conversation that is shown as text.

    Raises:
        InvalidRecord: tools replied in it, but the text does not show their calls.
    """
    _, *parts = SPEAKER.split(value[DISPLAY])
    messages = [{"role": role, "content": text.rstrip("\n")} for role, text in zip(parts[::2], parts[1::2], strict=True)]
    if any(message["role"] == "tool" for message in messages):
        detail = f"'{DISPLAY}' shows replies of tools, but not the calls; the runs themselves have both"
        raise InvalidRecord("tool calls unreadable", detail)
    return build_trace(FORMAT, place, RawTrace(messages, task=text_field(value, "task_id")))


READERS = (
    Reader(FORMAT, recognises, read),
    Reader(FORMAT, recognises_display, read_display, signs=Signs.NAMED),
)
