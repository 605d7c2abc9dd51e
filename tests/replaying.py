"""Replays whole frames of traces, which stages do batch by batch."""

import pandas

from tracewheel.core.types import Task
from tracewheel.curation.replay import replayed_rows


def replay_traces(traces: pandas.DataFrame, environment_kind: str) -> tuple[pandas.DataFrame, dict[str, Task]]:
    """Replay every trace of a frame of Trace records.

    Returns:
        The frame with the columns `task_id`, `fingerprint`, `success` (NaN when unscored), `breakdown`
        (JSON text), `ended`, `reward_drift`, `observation_drift`, `dropped` (why the trace cannot be
        used, or ""), `unscored` (why, or ""), `opening` (see `Replay`), `judged` (a judge's score from 0 to 1 in the log,
        NaN where there is none), `solution` and `difference` (see `Replay`); and the tasks by id. In a recorded environment
        `success` is the logged reward, else the judge's score, else the similarity to the other successes of the task.
    """
    tasks: dict[str, Task] = {}
    rows = []
    for row, task in replayed_rows(traces, environment_kind):
        rows.append(row)
        if task is not None:
            tasks.setdefault(task.id, task)
    return pandas.concat([traces.reset_index(drop=True), pandas.DataFrame(rows)], axis=1), tasks
