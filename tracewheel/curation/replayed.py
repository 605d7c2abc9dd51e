"""All traces of a data set played again, batch by batch: what is decided on stays in memory, what was said goes to a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config.curation import CurationConfig
from tracewheel.curation.contamination import BenchmarkIndex, Overlap
from tracewheel.curation.duplicates import DuplicateFinder, trace_batches
from tracewheel.curation.faults import fault_kind
from tracewheel.curation.probes import Call, verified_solutions
from tracewheel.curation.replay import replay_traces
from tracewheel.environments.recorded import PREFIX as RECORDED
from tracewheel.environments.recorded_traces import recorded_traces
from tracewheel.types import Task

if TYPE_CHECKING:
    import pandas
    import pyarrow

TEXTS = ("id", "user", "session", "task", "created", "task_id", "fingerprint", "dropped", "unscored", "failure")
NUMBERS, FLAGS = ("outcome", "success"), ("ended", "reward_drift", "observation_drift")
SAID = ("messages", "tools", "breakdown")  # what is long, and only in the file
FACTS = (*TEXTS, *NUMBERS, *FLAGS)


@dataclass
class Replayed:
    """Traces, played again.

    Attributes:
        facts: [N] rows with the columns `FACTS`; `dropped` is why a trace is of no use, or "".
        file: A Parquet file of the same N rows in the same order, with the columns `FACTS` and `SAID`.
        tasks: The tasks by id.
        solutions: Calls that replay proved to solve a task, by its id.
        clusters: Duplicates among the traces of use (see `duplicates.py`).
        overlaps: What they hold of benchmarks.
    """

    facts: pandas.DataFrame
    file: Path
    tasks: dict[str, Task] = field(default_factory=dict)
    solutions: dict[str, list[Call]] = field(default_factory=dict)
    clusters: pandas.DataFrame | None = None
    overlaps: list[Overlap] = field(default_factory=list)


def replay_all(traces: Path, environment: str, config: CurationConfig, file: Path) -> Replayed:
    """Replay the ingested traces.

    Args:
        traces: The Parquet file or folder of Trace records.
        environment: The kind of the environment. Those of a recording are read at once, as each success may be what
            another trace is compared with; all others a batch at a time.
        config: When two traces are one twice, and which benchmarks must not be trained on.
        file: Where the rows are written to.

    Raises:
        DataError: a benchmark's file cannot be read.
    """
    import pandas
    import pyarrow.parquet

    finder = DuplicateFinder(config.duplicates)
    index = BenchmarkIndex.read(config.decontamination) if config.decontamination.benchmarks else None
    replayed = Replayed(pandas.DataFrame(columns=list(FACTS)), file)
    facts = []
    with pyarrow.parquet.ParquetWriter(file, _schema()) as writer:
        for batch in _batches(traces, environment):
            rows = _with_failures(batch, environment, replayed.tasks)
            usable = rows[rows["dropped"] == ""]
            finder.add(usable)
            _keep_shorter(replayed.solutions, verified_solutions(usable, replayed.tasks))
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


def _with_failures(batch: pandas.DataFrame, environment: str, tasks: dict[str, Task]) -> pandas.DataFrame:
    """The batch replayed, with `failure`; new tasks are added to `tasks`."""
    rows, found = replay_traces(batch, environment)
    for task_id, task in found.items():
        tasks.setdefault(task_id, task)
    columns = ["messages", "tools", "success", "breakdown", "ended", "dropped"]
    rows["failure"] = [
        "" if dropped else fault_kind(json.loads(messages), json.loads(tools), success, json.loads(breakdown), ended)
        for messages, tools, success, breakdown, ended, dropped in rows[columns].itertuples(index=False, name=None)
    ]
    return rows.assign(**{name: None for name in FACTS if name not in rows})


def _keep_shorter(known: dict[str, list[Call]], found: dict[str, list[Call]]) -> None:
    for task_id, calls in found.items():
        if task_id not in known or len(calls) < len(known[task_id]):
            known[task_id] = calls


def _schema() -> pyarrow.Schema:
    import pyarrow

    kinds: list[tuple[tuple[str, ...], Any]] = [
        (TEXTS, pyarrow.string()),
        (NUMBERS, pyarrow.float64()),
        (FLAGS, pyarrow.bool_()),
        (SAID, pyarrow.string()),
    ]
    return pyarrow.schema([(name, kind) for names, kind in kinds for name in names])
