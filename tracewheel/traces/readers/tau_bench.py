"""Reads results of tau-bench: a list of runs, each with its conversation, reward and task.

Source of the format: Yao et al., "tau-bench: A Benchmark for Tool-Agent-User Interaction in Real-World Domains",
arXiv 2406.12045. The runs of one `task_id` are trials of one task.
"""

from __future__ import annotations

from typing import Any

from tracewheel.core.types import Trace
from tracewheel.traces.readers.building import (
    Place,
    RawTrace,
    build_trace,
    message_list,
    object_field,
    reward_field,
    text_field,
)
from tracewheel.traces.readers.openai import openai_messages
from tracewheel.traces.readers.reader import Reader

FORMAT = "tau_bench"


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


READER = Reader(FORMAT, recognises, read)
