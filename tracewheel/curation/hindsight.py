"""Hindsight demonstrations: a failed episode demonstrates the task that it did solve.

After hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495). Only environments whose final states can be
read as goals (`GoalFinder`) have such tasks; a task with a fixed answer has none.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from tracewheel.core.types import Task
from tracewheel.curation.faults import UNKNOWN, FinishedEpisode, find_fault
from tracewheel.curation.replay import LoggedEpisode, judge, no_op_problem, play
from tracewheel.environments import Environment, GoalFinder, open_environment

if TYPE_CHECKING:
    import pandas


def hindsight_episodes(episodes: pandas.DataFrame, tasks: dict[str, Task], taken: Collection[str]) -> pandas.DataFrame:
    """Failed episodes as demonstrations of the tasks that they solved.

    The calls are replayed and the new task's verifier scores the final state; only a full success counts. Episodes with an
    invented tool, an invalid call or repeated calls are left out. The user's message becomes the new task's prompt; all else
    stays.

    Args:
        episodes: As the curation stage writes them; those with `success` 0 are used.
        tasks: The tasks of the episodes, by id.
        taken: Fingerprints of tasks that must not be trained on.

    Returns:
        Rows with the columns of `episodes`, under the new tasks' ids and `success` 1.
    """
    import pandas as pd

    rows = []
    for record in episodes[episodes["success"] == 0.0].to_dict("records"):
        row = {str(name): value for name, value in record.items()}
        messages, tools = json.loads(row["messages"]), json.loads(row["tools"])
        if find_fault(FinishedEpisode(messages, tools)).kind != UNKNOWN:
            continue
        found = _relabelled(messages, tasks[row["task_id"]], taken)
        if found is not None:
            reached, messages = found
            changes = {"trace_id": f"{row['trace_id']}-hindsight", "task_id": reached.id, "success": 1.0, "failure": ""}
            rows.append({**row, **changes, "messages": json.dumps(messages, ensure_ascii=False)})
    return pd.DataFrame(rows, columns=episodes.columns)


def _relabelled(messages: list[dict[str, Any]], task: Task, taken: Collection[str]) -> tuple[Task, list[dict[str, Any]]] | None:
    with open_environment(task.environment) as environment:
        return _reached(environment, messages, task, taken)


def _reached(
    environment: Environment, messages: list[dict[str, Any]], task: Task, taken: Collection[str]
) -> tuple[Task, list[dict[str, Any]]] | None:
    asked = [index for index, message in enumerate(messages) if message["role"] == "user"]
    if not isinstance(environment, GoalFinder) or len(asked) != 1 or messages[asked[0]]["content"] != task.prompt:
        return None
    environment.reset(task)
    ended, drifted = play(messages, environment)
    reached = environment.task_reached(task, environment.snapshot()) if ended and not drifted else None
    if reached is None or reached.fingerprint == task.fingerprint or reached.fingerprint in taken:
        return None
    if judge(reached, environment, LoggedEpisode(messages, ended=ended))[0] != 1.0 or no_op_problem(reached, environment):
        return None
    renamed = [{**message, "content": reached.prompt} if i == asked[0] else message for i, message in enumerate(messages)]
    return reached, renamed
