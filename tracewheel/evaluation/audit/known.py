"""Known solutions of a curation's tasks: the calls of verified logs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tracewheel.core.types import Task
from tracewheel.curation.curated_folder import EPISODES_FILE
from tracewheel.curation.openings import calls_of
from tracewheel.curation.probes import shortest
from tracewheel.environments import make_environment
from tracewheel.evaluation.audit.play import Call


def logged_solutions(curated: Path, tasks: Sequence[Task]) -> dict[str, list[Call]]:
    """The shortest verified episode of each task that has one, as calls by task id."""
    import pandas

    frame = pandas.read_parquet(curated / EPISODES_FILE)
    known = {task.id: task for task in tasks}
    worlds = {spec: make_environment(spec) for spec in {task.environment for task in tasks}}
    won = frame[frame["task_id"].isin(known) & (frame["success"] >= 1.0)]
    made = []
    for trace, task_id, messages in zip(won["trace_id"], won["task_id"], won["messages"], strict=True):
        task = known[task_id]
        made.append((str(trace), task.id, calls_of(json.loads(messages), task, worlds[task.environment])))
    return shortest(made)
