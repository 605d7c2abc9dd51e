"""What curation works out for each trace by itself: its replay, its task, its fault, and what identifies its copies.

Nothing here depends on other traces, except in a recorded environment, so a later curation can reuse it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracewheel.core.kinds import parse_kind
from tracewheel.core.types import Task
from tracewheel.curation.contamination import BenchmarkIndex, Overlap
from tracewheel.curation.duplicates import SKETCH_COLUMNS, sketches
from tracewheel.curation.faults import FinishedEpisode, fault_word
from tracewheel.curation.labels import conversation_ended
from tracewheel.curation.openings import calls_of
from tracewheel.curation.replay import replayed_rows
from tracewheel.environments import Environment, Solver, member_for, open_environment
from tracewheel.environments.recorded.environment import PREFIX as RECORDED

if TYPE_CHECKING:
    import pandas
    import pyarrow

TEXTS = ("task_id", "fingerprint", "dropped", "unscored", "failure", "breakdown", "verifier")
NUMBERS, FLAGS, COUNTS = ("success", "judged"), ("ended", "reward_drift", "observation_drift", "solution"), ("opening",)
# JSON texts, null where there is none: the Task, the first reply that is not as logged, calls that solve the task, overlaps.
OPTIONAL_TEXTS = ("task_record", "difference", "calls", "overlaps")
KEYS = SKETCH_COLUMNS[:3]


class Work(NamedTuple):
    """A batch of traces, and the settings that its results depend on."""

    environment: str
    traces: pandas.DataFrame


def schema() -> pyarrow.Schema:
    """The columns of a trace's results."""
    import pyarrow

    kinds: list[tuple[Sequence[str], Any]] = [
        (TEXTS, pyarrow.string()),
        (NUMBERS, pyarrow.float64()),
        (FLAGS, pyarrow.bool_()),
        (COUNTS, pyarrow.int64()),
        (OPTIONAL_TEXTS, pyarrow.string()),
        (KEYS, pyarrow.uint64()),
        (SKETCH_COLUMNS[3:], pyarrow.binary()),
    ]
    return pyarrow.schema([(name, kind) for names, kind in kinds for name in names])


def trace_results(work: Work) -> pyarrow.Table:
    """Replay traces. Returns a row for each with the columns of `schema`; `overlaps` is null."""
    with open_environment(work.environment) as solver:
        return _results(work, solver)


def _results(work: Work, solver: Environment) -> pyarrow.Table:
    import pyarrow

    recorded = work.environment.startswith(RECORDED)
    solved: dict[str, bool] = {}
    found: list[dict[str, Any]] = []
    shown = zip(work.traces["messages"], work.traces["tools"], strict=True)
    for (row, task), (messages, tools) in zip(replayed_rows(work.traces, work.environment), shown, strict=True):
        row |= {"failure": "", "verifier": "", "task_record": None, "calls": None, "overlaps": None}
        if task is not None:
            said = json.loads(messages)
            if task.id not in solved:
                solved[task.id] = _knows_solution(solver, task)
            row["failure"] = _failure(said[row["opening"] :], json.loads(tools), row, recorded)
            row["verifier"], row["task_record"] = task.verifier, json.dumps(task.to_record())
            if row["success"] >= 1.0 and not solved[task.id]:
                own = member_for(solver, parse_kind(task.environment).kind) or solver
                row["calls"] = json.dumps(calls_of(said, task, own))
        row["difference"] = None if row["difference"] is None else json.dumps(asdict(row["difference"]))
        found.append(row)
    usable = np.array([not row["dropped"] for row in found], dtype=bool)
    fingerprints = [row["fingerprint"] for row in found]
    sketched = sketches(work.traces.assign(fingerprint=fingerprints)[usable])
    for column, values in sketched.items():
        for place, value in zip(np.flatnonzero(usable).tolist(), values, strict=True):
            found[place][column] = value
    empty = dict.fromkeys(SKETCH_COLUMNS[:3], 0)
    return pyarrow.Table.from_pylist([empty | row for row in found], schema=schema())


def with_overlaps(results: pyarrow.Table, traces: pandas.DataFrame, index: BenchmarkIndex) -> pyarrow.Table:
    """The results of some traces with the benchmark items that each usable one contains."""
    import pyarrow

    usable = [not dropped for dropped in results.column("dropped").to_pylist()]
    found: dict[str, list[Overlap]] = {}
    for overlap in index.overlaps(traces[usable]):
        found.setdefault(overlap.trace_id, []).append(overlap)
    texts = [
        json.dumps(found[name]) if held and name in found else None for name, held in zip(traces["id"], usable, strict=True)
    ]
    place = results.schema.get_field_index("overlaps")
    return results.set_column(place, schema().field("overlaps"), pyarrow.array(texts, type=pyarrow.string()))


def _failure(messages: list[dict[str, Any]], tools: list[dict[str, Any]], row: Mapping[str, Any], recorded: bool) -> str:
    """The fault word of a replayed episode."""
    # A simulator knows when an episode ends; of a recorded conversation only its last turn tells.
    over = row["ended"] or (recorded and conversation_ended(messages))
    return fault_word(FinishedEpisode(messages, tools, json.loads(row["breakdown"]), over), row["success"])


def _knows_solution(environment: Environment, task: Task) -> bool:
    return isinstance(environment, Solver) and environment.solution(task) is not None
