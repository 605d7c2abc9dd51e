"""Successes and malformed calls of an iteration's episodes, task by task."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

from tracewheel.core.files import read_table
from tracewheel.sampling.guard import TaskCounts
from tracewheel.scoring.flaws import steps_of
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
            steps = steps_of(json.loads(messages), json.loads(turns), tools)
            found[str(task_id)][2] += bool(steps["malformed"] or steps["unknown_tools"])
            found[str(task_id)][3] += 1
    return {task_id: TaskCounts(*counts) for task_id, counts in sorted(found.items())}
