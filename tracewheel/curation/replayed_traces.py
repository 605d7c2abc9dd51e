"""Replays all traces of a data set in batches: short columns stay in memory, conversations go to a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tracewheel.config.curation import CurationConfig
from tracewheel.core.files import read_batches
from tracewheel.core.ordered_map import OrderedMap
from tracewheel.core.types import Task
from tracewheel.curation.agreement import Difference
from tracewheel.curation.contamination import BenchmarkIndex, Overlap
from tracewheel.curation.duplicates import DuplicateFinder
from tracewheel.curation.faults import FinishedEpisode, fault_word
from tracewheel.curation.labels import conversation_ended
from tracewheel.curation.probes import verified_solutions
from tracewheel.curation.replay import replay_traces
from tracewheel.curation.superseded import superseded_traces
from tracewheel.curation.task_records import Solutions, TaskRecords
from tracewheel.environments import Environment, Solver, make_environment
from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.environments.recorded.traces import recorded_episodes

if TYPE_CHECKING:
    import pandas
    import pyarrow

TEXTS = ("id", "user", "session", "task", "created", "task_id", "fingerprint", "dropped", "unscored", "failure")
NUMBERS, FLAGS, COUNTS = (
    ("outcome", "success", "judged"),
    ("ended", "reward_drift", "observation_drift", "solution"),
    ("opening",),
)
TRACES_AT_ONCE = 5000
SHORT_COLUMNS = (*TEXTS, *NUMBERS, *FLAGS, *COUNTS)
LONG_COLUMNS = ("messages", "tools", "breakdown")  # in the file only


@dataclass
class ReplayedTraces:
    """Replayed traces.

    Attributes:
        rows: [N] rows with `SHORT_COLUMNS`; `dropped` is why a trace cannot be used, or "".
        file: A Parquet file of the same N rows in the same order, with `SHORT_COLUMNS` and `LONG_COLUMNS`.
        tasks: Their tasks.
        solutions: Calls whose replay solved a task, for tasks whose environment knows no solution.
        clusters: Duplicates among the usable traces (see `duplicates.py`).
        copy_keys: Trace id to a key that renumbered copies share.
        overlaps: Benchmark items in the usable traces.
        difference: The first reply that is not as logged.
        superseded: How many traces were left out because a longer one of the same conversation was stored later.
        recorded: What became of the traces in a recorded environment (see `recorded_episodes`), else None.
    """

    rows: pandas.DataFrame
    file: Path
    tasks: TaskRecords
    solutions: Solutions
    clusters: pandas.DataFrame | None = None
    copy_keys: pandas.Series | None = None
    overlaps: list[Overlap] = field(default_factory=list)
    difference: Difference | None = None
    superseded: int = 0
    recorded: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.tasks.close()
        self.solutions.close()


def replay_all(
    traces: Path, environment: str, config: CurationConfig, scratch: Path, mapped: OrderedMap | None = None
) -> ReplayedTraces:
    """Replay the ingested traces.

    Args:
        traces: The Parquet file or folder of Trace records.
        environment: The kind of the environment. Traces of a recorded environment are read at once, because each is compared
            with all successes; others are read in batches.
        config: What counts as a duplicate, and which benchmarks must not be trained on.
        scratch: A folder for working files; it must exist until the returned object is closed.
        mapped: Replays batches in several processes.

    Raises:
        DataError: a benchmark's file cannot be read.
    """
    import pandas
    import pyarrow.parquet

    finder = DuplicateFinder(config.duplicates)
    index = BenchmarkIndex.read(config.decontamination) if config.decontamination.benchmarks else None
    file = scratch / "replayed.parquet"
    tasks, solutions = TaskRecords(scratch / "tasks.jsonl"), Solutions(scratch / "solutions.jsonl")
    replayed = ReplayedTraces(pandas.DataFrame(columns=list(SHORT_COLUMNS)), file, tasks, solutions)
    solver = make_environment(environment)
    unsolved: set[str] = set()
    parts = []
    with pyarrow.parquet.ParquetWriter(file, _schema()) as writer:
        superseded = superseded_traces(traces)
        replayed.superseded = len(superseded)
        batches = ((environment, *batch) for batch in _batches(traces, environment, config, superseded))
        for rows, found, counts in (mapped or OrderedMap())(_with_failures, batches):
            replayed.recorded = counts
            for task_id, task in found.items():
                if task_id not in tasks:
                    tasks.add(task)
                    if not _knows_solution(solver, task):
                        unsolved.add(task_id)
            replayed.difference = replayed.difference or next(filter(None, rows["difference"]), None)
            usable = rows[rows["dropped"] == ""]
            finder.add(usable)
            solutions.add(verified_solutions(usable[usable["task_id"].isin(unsolved)], found))
            if index:
                replayed.overlaps += index.overlaps(usable)
            table = pyarrow.Table.from_pandas(rows[[*SHORT_COLUMNS, *LONG_COLUMNS]], schema=_schema(), preserve_index=False)
            writer.write_table(table)
            parts.append(table.select(list(SHORT_COLUMNS)).to_pandas())
    if parts:
        replayed.rows = pandas.concat(parts, ignore_index=True)
    replayed.clusters, replayed.copy_keys = finder.clusters(), finder.copy_keys()
    return replayed


def _batches(
    traces: Path, environment: str, config: CurationConfig, without: frozenset[str]
) -> Iterator[tuple[pandas.DataFrame, dict[str, Any] | None]]:
    import pyarrow.dataset

    found = pyarrow.dataset.dataset(traces, format="parquet")
    if environment.startswith(RECORDED):
        rows = found.to_table().to_pandas()
        yield recorded_episodes(rows[~rows["id"].isin(without)], environment, by=config.recorded_by)
        return
    # Not the dataset's own batches: they are read far ahead, and hundreds of thousands of traces would wait in memory.
    for file in found.files:
        for batch in read_batches(Path(file), TRACES_AT_ONCE):
            rows = batch.to_pandas()
            yield rows[~rows["id"].isin(without)] if without else rows, None


def _with_failures(
    work: tuple[str, pandas.DataFrame, dict[str, Any] | None],
) -> tuple[pandas.DataFrame, dict[str, Task], dict[str, Any] | None]:
    """The replayed batch with a column `failure`, its tasks, and the counts given."""
    environment, batch, counts = work
    rows, found = replay_traces(batch, environment)
    recorded = environment.startswith(RECORDED)
    columns = ["messages", "opening", "tools", "success", "breakdown", "ended", "dropped"]
    rows["failure"] = [
        "" if dropped else _failure(json.loads(messages)[opening:], json.loads(tools), (success, breakdown, ended, recorded))
        for messages, opening, tools, success, breakdown, ended, dropped in rows[columns].itertuples(index=False, name=None)
    ]
    return rows.assign(**{name: None for name in SHORT_COLUMNS if name not in rows}), found, counts


def _failure(messages: list[dict[str, Any]], tools: list[dict[str, Any]], outcome: tuple[float, str, bool, bool]) -> str:
    """The fault word of an episode, from its success, breakdown, whether a call ended it, and whether it is recorded."""
    success, breakdown, ended, recorded = outcome
    # A simulator knows when an episode ends; of a recorded conversation only its last turn tells.
    over = ended or (recorded and conversation_ended(messages))
    return fault_word(FinishedEpisode(messages, tools, json.loads(breakdown), over), success)


def _knows_solution(environment: Environment, task: Task) -> bool:
    return isinstance(environment, Solver) and environment.solution(task) is not None


def _schema() -> pyarrow.Schema:
    import pyarrow

    kinds: list[tuple[tuple[str, ...], Any]] = [
        (TEXTS, pyarrow.string()),
        (NUMBERS, pyarrow.float64()),
        (FLAGS, pyarrow.bool_()),
        (COUNTS, pyarrow.int64()),
        (LONG_COLUMNS, pyarrow.string()),
    ]
    return pyarrow.schema([(name, kind) for names, kind in kinds for name in names])
