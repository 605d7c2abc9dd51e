"""Replays all traces of a data set in batches: short columns stay in memory, conversations go to a file."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tracewheel.config import CurateSections
from tracewheel.config.curation import CurationConfig
from tracewheel.core.files import read_batches
from tracewheel.core.log_formats import REQUESTS
from tracewheel.core.processes import OrderedMap, Ready
from tracewheel.core.types import Task
from tracewheel.curation.agreement import Difference
from tracewheel.curation.contamination import BenchmarkIndex, Overlap
from tracewheel.curation.duplicates import SKETCH_COLUMNS, DuplicateFinder
from tracewheel.curation.probes import shortest
from tracewheel.curation.reuse.earlier_results import EarlierResults, KnownResults, NotRepeatable, silent
from tracewheel.curation.task_records import Solutions, TaskRecords
from tracewheel.curation.trace_results import Work, trace_results, with_overlaps
from tracewheel.curation.versions import Versions, todays
from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.environments.recorded.traces import recorded_episodes
from tracewheel.traces.ingested_folder import TRACES_FOLDER
from tracewheel.traces.readers.conversation import history_hashes

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
NEW_TRACES = 1000  # in a batch, for which other processes pay
SHORT_COLUMNS = (*TEXTS, *NUMBERS, *FLAGS, *COUNTS)
LONG_COLUMNS = ("messages", "tools", "breakdown")  # in the file only

COLUMNS = ["id", "session", "user", "format", "messages", "outcome"]
ROWS_AT_ONCE = 2000

REPLAYED = ("task_id", "fingerprint", "success", "reward_drift", "observation_drift", "dropped", "unscored", "failure")
UNPROVEN = {**dict.fromkeys(REPLAYED), "dropped": "a recorded environment proves no outcome"}


class Means(NamedTuple):
    """What the work is done with. It changes no byte of the output.

    Attributes:
        mapped: Replays and probes in several processes.
        reuse: Results of earlier curations.
    """

    mapped: OrderedMap = OrderedMap()
    reuse: EarlierResults | None = None


ALONE = Means()


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
        versions: What was logged with another prompt or other tools than today's (`Versions.report`).
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
    versions: dict[str, Any] = field(default_factory=dict)

    def add(self, results: pyarrow.Table, ids: list[str], finder: DuplicateFinder) -> None:
        """Add the tasks, solutions, copies, overlaps and the first difference of a batch."""
        names = ("task_id", "dropped", "task_record", "difference", "calls", "overlaps", *SKETCH_COLUMNS)
        column = {name: results.column(name).to_pylist() for name in names}
        usable = [place for place, dropped in enumerate(column["dropped"]) if not dropped]
        calls = []
        for place in usable:
            task_id = column["task_id"][place]
            if task_id not in self.tasks:
                self.tasks.add(Task.from_record(json.loads(column["task_record"][place])))
            if column["calls"][place] is not None:
                made = [(name, arguments) for name, arguments in json.loads(column["calls"][place])]
                calls.append((ids[place], task_id, made))
            if column["overlaps"][place] is not None:
                self.overlaps += [Overlap(*overlap) for overlap in json.loads(column["overlaps"][place])]
        self.solutions.add(shortest(calls))
        first = next(filter(None, column["difference"]), None)
        if self.difference is None and first is not None:
            self.difference = Difference(**json.loads(first))
        finder.add_sketches(
            [ids[place] for place in usable],
            {name: [column[name][place] for place in usable] for name in SKETCH_COLUMNS},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.tasks.close()
        self.solutions.close()


def replay_all(traces: Path, environment: str, config: CurationConfig, scratch: Path, means: Means = ALONE) -> ReplayedTraces:
    """Replay the ingested traces.

    Args:
        traces: The Parquet file or folder of Trace records.
        environment: The kind of the environment. Traces of a recorded environment are read at once, because each is compared
            with all successes; others are read in batches.
        config: What counts as a duplicate, and which benchmarks must not be trained on.
        scratch: A folder for working files; it must exist until the returned object is closed.
        means: What the work is done with.

    Raises:
        DataError: a benchmark's file cannot be read.
        NotRepeatable: a trace replays otherwise than in an earlier curation.
    """
    import pandas
    import pyarrow.parquet

    finder = DuplicateFinder()
    index = BenchmarkIndex.read(config.decontamination.benchmarks) if config.decontamination.benchmarks else None
    file = scratch / "replayed.parquet"
    tasks, solutions = TaskRecords(scratch / "tasks.jsonl"), Solutions(scratch / "solutions.jsonl")
    replayed = ReplayedTraces(pandas.DataFrame(columns=list(SHORT_COLUMNS)), file, tasks, solutions)
    parts = []
    with pyarrow.parquet.ParquetWriter(file, _schema()) as writer:
        superseded = superseded_traces(traces)
        replayed.superseded = len(superseded)
        versions = Versions(todays(environment), config.other_versions)
        batches = _batches(traces, environment, config, superseded, versions)
        for batch, replayed.recorded, results in with_results(batches, (environment, index), means):
            replayed.add(results, batch.column("id").to_pylist(), finder)
            table = _rows(batch, results)
            writer.write_table(table)
            parts.append(table.select(list(SHORT_COLUMNS)).to_pandas())
        replayed.versions = versions.report()
    if parts:
        replayed.rows = pandas.concat(parts, ignore_index=True)
    replayed.clusters, replayed.copy_keys = finder.clusters(), finder.copy_keys()
    return replayed


def _batches(
    traces: Path, environment: str, config: CurationConfig, without: frozenset[str], versions: Versions
) -> Iterator[tuple[pyarrow.Table, dict[str, Any] | None]]:
    """The traces in batches, and what became of them in a recorded environment."""
    import pyarrow
    import pyarrow.compute
    import pyarrow.dataset

    found = pyarrow.dataset.dataset(traces, format="parquet")
    left_out = pyarrow.array(sorted(without), type=pyarrow.string())
    if environment.startswith(RECORDED):
        rows = versions.take(found.to_table()).to_pandas()
        episodes, counts = recorded_episodes(rows[~rows["id"].isin(without)], environment, by=config.recorded_by)
        yield pyarrow.Table.from_pandas(episodes, preserve_index=False), counts
        return
    # Not the dataset's own batches: they are read far ahead, and hundreds of thousands of traces would wait in memory.
    for file in found.files:
        for batch in read_batches(Path(file), TRACES_AT_ONCE):
            table = pyarrow.Table.from_batches([batch])
            known = pyarrow.compute.is_in(table.column("id").cast(pyarrow.string()), value_set=left_out)
            yield versions.take(table.filter(pyarrow.compute.invert(known)) if without else table), None


def with_results(
    batches: Iterator[tuple[pyarrow.Table, dict[str, Any] | None]],
    settings: tuple[str, BenchmarkIndex | None],
    means: Means,
) -> Iterator[tuple[pyarrow.Table, dict[str, Any] | None, pyarrow.Table]]:
    """The batches with the results of each of their traces: those that are kept from earlier curations, and new ones."""
    environment, index = settings
    waiting: deque[tuple[pyarrow.Table, dict[str, Any] | None, KnownResults | None]] = deque()

    def work() -> Iterator[Work | Ready[pyarrow.Table]]:
        for batch, counts in batches:
            known = KnownResults.of(batch, means.reuse) if means.reuse else None
            waiting.append((batch, counts, known))
            item = Work(environment, _new(batch, known))
            yield Ready(trace_results(item)) if known and len(item.traces) < min(NEW_TRACES, len(batch)) else item

    for made in means.mapped(trace_results, work()):
        batch, counts, known = waiting.popleft()
        if index:
            made = with_overlaps(made, _new(batch, known), index)
        yield batch, counts, known.completed(made) if known else made


def _new(batch: pyarrow.Table, known: KnownResults | None) -> pandas.DataFrame:
    """The traces whose results are made now."""
    import pyarrow

    return (batch.filter(pyarrow.array(known.new)) if known else batch).to_pandas()


def _rows(batch: pyarrow.Table, results: pyarrow.Table) -> pyarrow.Table:
    """Rows of the replayed file: the batch's own columns, and those of the results."""
    import pyarrow

    columns = {
        field.name: results.column(field.name)
        if field.name in results.column_names
        else batch.column(field.name).cast(field.type)
        if field.name in batch.column_names
        else pyarrow.nulls(len(batch), field.type)
        for field in _schema()
    }
    return pyarrow.table(columns, schema=_schema())


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


def superseded_traces(traces: Path) -> frozenset[str]:
    """The ids of traces that are the beginning of another one of the same session and user.

    Only traces from logs of requests count, as only these are stored piece by piece; one with an outcome ended there.
    """
    import pyarrow.dataset

    ends: dict[bytes, list[str]] = {}
    beginnings: set[bytes] = set()
    for file in map(Path, pyarrow.dataset.dataset(traces, format="parquet").files):
        for row in _rows_of_requests(file):
            owner = f"{row['session']}\0{row['user']}\0".encode()
            *earlier, end = (owner + part for part in history_hashes(json.loads(row["messages"])))
            beginnings.update(earlier)
            if row["outcome"] is None:
                ends.setdefault(end, []).append(row["id"])
    return frozenset(identity for end in ends.keys() & beginnings for identity in ends[end])


def _rows_of_requests(file: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.compute

    # The column of formats is short; most files have no logs of requests, and their conversations need not be read for this.
    formats = (batch.column("format") for batch in read_batches(file, ROWS_AT_ONCE, ["format"]))
    if any(pyarrow.compute.any(pyarrow.compute.equal(column, REQUESTS)).as_py() for column in formats):
        for batch in read_batches(file, ROWS_AT_ONCE, COLUMNS):
            yield from batch.filter(pyarrow.compute.equal(batch.column("format"), REQUESTS)).to_pylist()


def replayed_rows(
    ingested: Path,
    config: CurateSections,
    reuse: Path | None = None,
    say: Callable[[str], None] = silent,
    of: Callable[[pyarrow.Table], Sequence[bool]] | None = None,
) -> Iterator[dict[str, Any]]:
    """Replay the traces of an ingested folder.

    The results are kept in `reuse`, so the curation that follows with the same folder and settings does not replay these
    traces again. Longer versions of a conversation do not replace shorter ones here, as they do in a curation.

    Args:
        ingested: What `ingest` wrote.
        config: `environment` and `curation` are used.
        reuse: The store's folder of results (`Store.reuse`).
        say: Takes a sentence about what is reused, and what is not.
        of: Which traces of a table are meant; by default all.

    Yields:
        Each trace as it is stored, with `REPLAYED` (`success` is the verified outcome, NaN where it is unscored, `unscored`
        says why; `reward_drift`: it is not the logged one; `observation_drift`: a tool replied otherwise than in the log;
        `dropped`: why the trace gives no episode, or ""). In a recorded environment, which proves nothing, all are `dropped`.
    """
    parts, at = sorted((ingested / TRACES_FOLDER).glob("*.parquet")), 0
    outcomes = None if config.environment.kind.startswith(RECORDED) else _outcomes(parts, of, config, reuse, say)
    for table in _selected(parts, of):
        rows = table.to_pandas()
        own = UNPROVEN if outcomes is None else outcomes.iloc[at : at + len(rows)].set_axis(rows.index)
        at += len(rows)
        for row in rows.assign(**{name: own[name] for name in REPLAYED}).to_dict("records"):
            yield {str(name): value for name, value in row.items()}


def _selected(parts: Collection[Path], of: Callable[[pyarrow.Table], Sequence[bool]] | None) -> Iterator[pyarrow.Table]:
    """The traces that are meant, some thousands at once."""
    import pyarrow

    for part in parts:
        for batch in read_batches(part, TRACES_AT_ONCE):
            table = pyarrow.Table.from_batches([batch])
            wanted = table if of is None else table.filter(pyarrow.array(of(table), type=pyarrow.bool_()))
            if len(wanted):
                yield wanted


def _outcomes(
    parts: Collection[Path],
    of: Callable[[pyarrow.Table], Sequence[bool]] | None,
    config: CurateSections,
    reuse: Path | None,
    say: Callable[[str], None],
) -> pandas.DataFrame:
    """[N] rows with `REPLAYED`, of the traces that are meant."""
    with EarlierResults.opened(reuse, config, say) as kept:
        try:
            return _made(_selected(parts, of), config, kept)
        except NotRepeatable as error:
            assert kept is not None
            kept.distrust(str(error))
    return _made(_selected(parts, of), config, None)


def _made(tables: Iterator[pyarrow.Table], config: CurateSections, kept: EarlierResults | None) -> pandas.DataFrame:
    import pandas

    benchmarks = config.curation.decontamination.benchmarks
    index = BenchmarkIndex.read(benchmarks) if kept and benchmarks else None
    found = with_results(((table, None) for table in tables), (config.environment.spec, index), Means(reuse=kept))
    frames = [results.select(list(REPLAYED)).to_pandas() for _, _, results in found]
    if kept:
        kept.keep(whole=False)
    return pandas.concat(frames or [pandas.DataFrame(columns=list(REPLAYED))], ignore_index=True)
