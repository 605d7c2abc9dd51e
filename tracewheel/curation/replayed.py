"""All traces of a data set played again, batch by batch: what is decided on stays in memory, what was said goes to a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tracewheel.config.curation import CurationConfig
from tracewheel.core.types import Task
from tracewheel.curation.contamination import BenchmarkIndex, Overlap
from tracewheel.curation.duplicates import DuplicateFinder, trace_batches
from tracewheel.curation.faults import fault_kind
from tracewheel.curation.probes import verified_solutions
from tracewheel.curation.replay import replay_traces
from tracewheel.curation.shelf import Solutions, Tasks
from tracewheel.environments import Environment, Solver, make_environment
from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.environments.recorded.traces import recorded_traces

if TYPE_CHECKING:
    import pandas
    import pyarrow

TEXTS = ("id", "user", "session", "task", "created", "task_id", "fingerprint", "dropped", "unscored", "failure")
NUMBERS, FLAGS, COUNTS = ("outcome", "success", "judged"), ("ended", "reward_drift", "observation_drift"), ("opening",)
SAID = ("messages", "tools", "breakdown")  # what is long, and only in the file
FACTS = (*TEXTS, *NUMBERS, *FLAGS, *COUNTS)


@dataclass
class Replayed:
    """Traces, played again.

    Attributes:
        facts: [N] rows with the columns `FACTS`; `dropped` is why a trace is of no use, or "".
        file: A Parquet file of the same N rows in the same order, with the columns `FACTS` and `SAID`.
        tasks: Their tasks.
        solutions: Calls that replay proved to solve a task, where its environment knows none.
        clusters: Duplicates among the traces of use (see `duplicates.py`).
        overlaps: What they hold of benchmarks.
    """

    facts: pandas.DataFrame
    file: Path
    tasks: Tasks
    solutions: Solutions
    clusters: pandas.DataFrame | None = None
    overlaps: list[Overlap] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.tasks.close()
        self.solutions.close()


def replay_all(traces: Path, environment: str, config: CurationConfig, scratch: Path) -> Replayed:
    """Replay the ingested traces.

    Args:
        traces: The Parquet file or folder of Trace records.
        environment: The kind of the environment. Those of a recording are read at once, as each success may be what
            another trace is compared with; all others a batch at a time.
        config: When two traces are one twice, and which benchmarks must not be trained on.
        scratch: A folder for what memory has no room for; it must stay until what is returned is closed.

    Raises:
        DataError: a benchmark's file cannot be read.
    """
    import pandas
    import pyarrow.parquet

    finder = DuplicateFinder(config.duplicates)
    index = BenchmarkIndex.read(config.decontamination) if config.decontamination.benchmarks else None
    file = scratch / "replayed.parquet"
    tasks, solutions = Tasks(scratch / "tasks.jsonl"), Solutions(scratch / "solutions.jsonl")
    replayed = Replayed(pandas.DataFrame(columns=list(FACTS)), file, tasks, solutions)
    played = make_environment(environment)
    unsolved: set[str] = set()
    facts = []
    with pyarrow.parquet.ParquetWriter(file, _schema()) as writer:
        for batch in _batches(traces, environment):
            rows, found = _with_failures(batch, environment)
            for task_id, task in found.items():
                if task_id not in tasks:
                    tasks.add(task)
                    if not _knows_solution(played, task):
                        unsolved.add(task_id)
            usable = rows[rows["dropped"] == ""]
            finder.add(usable)
            solutions.add(verified_solutions(usable[usable["task_id"].isin(unsolved)], found))
            if index:
                for trace_id, messages in zip(usable["id"], usable["messages"], strict=True):
                    replayed.overlaps += index.overlaps(trace_id, json.loads(messages))
            table = pyarrow.Table.from_pandas(rows[[*FACTS, *SAID]], schema=_schema(), preserve_index=False)
            writer.write_table(table)
            facts.append(table.select(list(FACTS)).to_pandas())
    if facts:
        replayed.facts = pandas.concat(facts, ignore_index=True)
    replayed.clusters = finder.clusters()
    return replayed


def _batches(traces: Path, environment: str) -> Iterator[pandas.DataFrame]:
    import pyarrow.dataset

    found = pyarrow.dataset.dataset(traces, format="parquet")
    if environment.startswith(RECORDED):
        yield recorded_traces(found.to_table().to_pandas(), environment)
    else:
        yield from trace_batches(traces, found.schema.names)


def _with_failures(batch: pandas.DataFrame, environment: str) -> tuple[pandas.DataFrame, dict[str, Task]]:
    """The batch replayed, with `failure`; and its tasks."""
    rows, found = replay_traces(batch, environment)
    columns = ["messages", "opening", "tools", "success", "breakdown", "ended", "dropped"]
    rows["failure"] = [
        "" if dropped else fault_kind(json.loads(said)[opening:], json.loads(tools), success, json.loads(breakdown), ended)
        for said, opening, tools, success, breakdown, ended, dropped in rows[columns].itertuples(index=False, name=None)
    ]
    return rows.assign(**{name: None for name in FACTS if name not in rows}), found


def _knows_solution(environment: Environment, task: Task) -> bool:
    return isinstance(environment, Solver) and environment.solution(task) is not None


def _schema() -> pyarrow.Schema:
    import pyarrow

    kinds: list[tuple[tuple[str, ...], Any]] = [
        (TEXTS, pyarrow.string()),
        (NUMBERS, pyarrow.float64()),
        (FLAGS, pyarrow.bool_()),
        (COUNTS, pyarrow.int64()),
        (SAID, pyarrow.string()),
    ]
    return pyarrow.schema([(name, kind) for names, kind in kinds for name in names])
