"""Successes and malformed calls of an iteration's episodes, task by task."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tracewheel.core.files import read_table
from tracewheel.core.types import first_turn
from tracewheel.sampling.guard import TaskCounts
from tracewheel.scoring.rubric import success_of
from tracewheel.scoring.score import read_scores

COLUMNS = ("task_id", "turns", "messages")


def count_episodes(
    trajectories: Sequence[Path], scores: Sequence[Path], tools: Collection[str] | None
) -> dict[str, TaskCounts]:
    """The counts of each task of an iteration. Unscored episodes are left out of successes and failures.

    Args:
        trajectories: Files of the iteration's trajectories.
        scores: Files of their scores.
        tools: Names of the offered tools; None where they are unknown, which leaves invented tools out.

    Raises:
        DataError: a file is missing or cannot be read.
    """
    found: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for file in scores:
        for score in read_scores(file):
            success = success_of(score)
            if not math.isnan(success):
                found[score.task_id][0] += int(success)
                found[score.task_id][1] += 1
    for file in trajectories:
        table = read_table(file, COLUMNS)
        for task_id, turns, messages in zip(table["task_id"], table["turns"], table["messages"], strict=True):
            found[str(task_id)][2] += _is_malformed(json.loads(turns), json.loads(messages), tools)
            found[str(task_id)][3] += 1
    return {task_id: TaskCounts(*counts) for task_id, counts in sorted(found.items())}


def _is_malformed(
    turns: Sequence[Mapping[str, Any]], messages: Sequence[Mapping[str, Any]], tools: Collection[str] | None
) -> bool:
    """Whether an episode has a malformed call, or one of a tool that was not offered."""
    if any(turn["malformed"] for turn in turns):
        return True
    own = messages[first_turn(messages, turns) :] if tools is not None else ()
    calls = [call for message in own if message["role"] == "assistant" for call in message.get("tool_calls") or ()]
    return any(call["function"]["name"] not in (tools or ()) for call in calls)
