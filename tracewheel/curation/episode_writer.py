"""Writes the labelled episodes of the tasks in use, and the training sets.

Conversations do not fit into memory, so they are written in parts; all episodes of a task are in one part. They come in
the order of tasks by an external bucket sort: rows are dealt into buckets, each a Parquet file, which are read one after the
other. Time is linear in the rows.

The training sets are demonstrations, Agent-FLAN classes, preference pairs and hindsight, of the training split alone. Each is a
Parquet file of chat messages as JSON text, for Tracewheel's own stages and for other trainers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from tracewheel.chat.faithful import BROKEN_CALL
from tracewheel.config.curation import SetsConfig
from tracewheel.core.files import read_batches
from tracewheel.core.processes import OrderedMap
from tracewheel.core.types import Task, content_hash
from tracewheel.curation.agent_flan import CLASSES, flan_example
from tracewheel.curation.curated_folder import EPISODES_FILE, SETS_FOLDER, TRAIN
from tracewheel.curation.hindsight import hindsight_episodes
from tracewheel.curation.labels import JUDGED, LABEL_COLUMNS, LOGGED, VERIFIED, label_episodes, label_report
from tracewheel.curation.message_pairs import preference_pairs
from tracewheel.curation.openings import NOT_WHOLE, opening_lengths, whole_episodes
from tracewheel.environments.recorded.calls import has_broken_call

if TYPE_CHECKING:
    import pandas


DEMONSTRATIONS, FLAN, PAIRS, HINDSIGHT = "demonstrations", "agent_flan", "preference_pairs", "hindsight"
PAIRS_PER_TASK = 8  # preference pairs
DEMONSTRATION_COLUMNS = ("id", "task_id", "trace_id", "outcome_source", "label", "opening", "messages", "tools")
FLAN_COLUMNS = ("id", "task_id", "trace_id", "class", "opening", "messages", "tools")
SET_VERSION = 1


def stage_sets(
    tasks: pandas.DataFrame,
    episodes: pandas.DataFrame,
    config: SetsConfig | None = None,
) -> tuple[dict[str, pandas.DataFrame], dict[str, Any]]:
    """Make the sets of a curated data set.

    Args:
        tasks: Task records with `split`.
        episodes: As the curation stage writes them, with the columns of `label_episodes`.
        config: Which sources of outcomes are trusted, and which pairs are made.

    Returns:
        A frame for each set, by name: `demonstrations`, `agent_flan`, `preference_pairs` and `hindsight`. And a report with
        the rows of each, the Agent-FLAN rows by class, the report on the pairs, and successes `left_out` by reason.
    """
    config = config or SetsConfig()
    training = episodes[episodes["split"] == TRAIN].sort_values(["task_id", "trace_id"])
    training = training.assign(opening=opening_lengths(training))
    whole = whole_episodes(training)
    good = training[training["outcome_source"].isin(config.sources) & (training["label"] >= 1.0)]
    broken = good["messages"].map(lambda messages: has_broken_call(json.loads(messages))).astype(bool)
    cut = ~broken & ~good.index.isin(whole.index)
    good = whole[whole.index.isin(good.index[~broken])]
    demonstrations = _demonstrations(good)
    flan = _flan(good)
    # Where the log's word counts, one that nobody has judged is no failure because it is unlike a success.
    told = LOGGED in config.sources and JUDGED not in config.sources
    known = training[training["outcome_source"] != JUDGED] if told else training
    pairs, pair_report = preference_pairs(known, per_task=PAIRS_PER_TASK, margin=1.0, shared="auto")
    hindsight = _demonstrations(_hindsight(tasks, whole))
    sets = {DEMONSTRATIONS: demonstrations, FLAN: flan, PAIRS: pairs, HINDSIGHT: hindsight}
    sets = {name: frame.assign(schema_version=SET_VERSION) for name, frame in sets.items()}
    report = {
        "rows": {name: len(frame) for name, frame in sets.items()},
        "agent_flan": {str(name): int(count) for name, count in sorted(flan["class"].value_counts().items())},
        "preference_pairs": pair_report,
        "left_out": {why: int(found.sum()) for why, found in ((BROKEN_CALL, broken), (NOT_WHOLE, cut)) if found.any()},
    }
    return sets, report


class SetsWriter:
    """Writes the sets of a data set in parts, as `<name>.parquet`. All episodes of a task must be in one part.

    Args:
        tasks: Task records with `split`.
        out: The folder.
        config: As in `stage_sets`.
    """

    def __init__(self, tasks: pandas.DataFrame, out: Path, config: SetsConfig | None = None) -> None:
        self._tasks, self._out, self._config = tasks, out, config
        self._writers: dict[str, Any] = {}
        self._report: dict[str, Any] = {}

    def __enter__(self) -> Self:
        self._out.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    def add(self, episodes: pandas.DataFrame) -> None:
        """Add the episodes of some tasks."""
        import pyarrow
        import pyarrow.parquet

        if self._writers and not (episodes["split"] == TRAIN).any():
            return
        sets, report = stage_sets(self._tasks, episodes, self._config)
        self._report = _sum(self._report, report)
        for name, frame in sets.items():
            schema = pyarrow.schema([(column, _kind(column)) for column in frame.columns])
            if name not in self._writers:
                self._writers[name] = pyarrow.parquet.ParquetWriter(self._out / f"{name}.parquet", schema)
            self._writers[name].write_table(pyarrow.Table.from_pandas(frame, schema=schema, preserve_index=False))

    def report(self) -> dict[str, Any]:
        """The report of `stage_sets` over all parts."""
        return self._report


def _kind(column: str) -> Any:
    import pyarrow

    numbers = dict.fromkeys(("label", "margin"), pyarrow.float64())
    counts = dict.fromkeys(("step", "opening", "schema_version"), pyarrow.int64())
    return (numbers | counts).get(column, pyarrow.string())


def _sum(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """The sum of two nested mappings of counts."""
    added = dict(one)
    for name, value in other.items():
        added[name] = _sum(one.get(name, {}), value) if isinstance(value, dict) else one.get(name, 0) + value
    return added


def _demonstrations(episodes: pandas.DataFrame) -> pandas.DataFrame:
    """Whole episodes without repetitions, which would only add weight."""
    identities = [content_hash([spoken, tools]) for spoken, tools in zip(episodes["messages"], episodes["tools"], strict=True)]
    rows = episodes.assign(id=identities).drop_duplicates("id")
    return rows[list(DEMONSTRATION_COLUMNS)].reset_index(drop=True)


def _flan(episodes: pandas.DataFrame) -> pandas.DataFrame:
    import pandas

    rows: dict[str, tuple[Any, ...]] = {}
    for kind in CLASSES:
        columns = episodes[["task_id", "trace_id", "messages", "tools", "opening"]]
        for task_id, trace_id, spoken, offered, opening in columns.itertuples(index=False, name=None):
            example = flan_example(kind, json.loads(spoken), json.loads(offered), opening)
            if example is None:
                continue
            messages, tools = (json.dumps(part, ensure_ascii=False) for part in example[:2])
            identity = content_hash([kind, messages, tools])
            rows.setdefault(identity, (identity, task_id, trace_id, kind, example.context, messages, tools))
    return pandas.DataFrame(list(rows.values()), columns=list(FLAN_COLUMNS))


def _hindsight(tasks: pandas.DataFrame, training: pandas.DataFrame) -> pandas.DataFrame:
    """Failed episodes as successes of the goals they reached, where the environment can read a goal from a final state."""
    # Hindsight reads `success`; the label is the outcome that counts.
    failed = training[training["outcome_source"] == VERIFIED]
    own = tasks[(tasks["split"] == TRAIN) & tasks["id"].isin(failed["task_id"])]
    records = [{str(name): value for name, value in row.items()} for row in own.to_dict("records")]
    by_id = {record["id"]: Task.from_record(record) for record in records}
    taken = set(tasks.loc[tasks["split"] != TRAIN, "fingerprint"])
    failed = failed[failed["task_id"].isin(list(by_id))]
    found = hindsight_episodes(failed.assign(success=failed["label"]), by_id, taken)
    return found.assign(outcome_source=VERIFIED, label=found["success"])


KNOWN_COLUMNS = (
    "trace_id",
    "task_id",
    "split",
    "success",
    "solution",
    "failure",
    "user",
    "session",
    "opening",
    "messages",
    "tools",
)
EPISODE_COLUMNS = [*KNOWN_COLUMNS, *LABEL_COLUMNS]


@dataclass(frozen=True)
class EpisodeOrder:
    """Which replayed traces are episodes of the tasks in use, and their order.

    Attributes:
        file: The replayed traces, N rows (see `replayed_traces.py`).
        ranks: [N] position of the row among the episodes, -1 where it is not an episode.
        together: [N] number of the row's task.
        tasks: Records of the tasks in use and of the reserve, with `split`.
        scratch: A folder for working files.
    """

    file: Path
    ranks: npt.NDArray[np.int64]
    together: npt.NDArray[np.int64]
    tasks: pandas.DataFrame
    scratch: Path


def write_episodes(
    order: EpisodeOrder, out: Path, config: SetsConfig, *, replay_proves: bool, mapped: OrderedMap | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write episodes.parquet and the folder sets/.

    Args:
        order: The episodes and their order.
        out: The folder.
        config: The contents of the sets.
        replay_proves: As for `label_episodes`.
        mapped: Labels parts in several processes.

    Returns:
        The reports on the labels and on the sets.
    """
    import pandas
    import pyarrow
    import pyarrow.parquet

    labels: list[pandas.DataFrame] = []
    writer = None
    with SetsWriter(order.tasks, out / SETS_FOLDER, config) as sets:
        label = partial(_labelled, replay_proves=replay_proves)
        for part in (mapped or OrderedMap())(label, _parts(order)):
            sets.add(part)
            labels.append(part[list(LABEL_COLUMNS)])
            table = pyarrow.Table.from_pandas(part[EPISODE_COLUMNS], preserve_index=False)
            writer = writer or pyarrow.parquet.ParquetWriter(out / EPISODES_FILE, table.schema)
            writer.write_table(table.cast(writer.schema))
    assert writer is not None, "every task in use has an episode"
    writer.close()
    return label_report(pandas.concat(labels)), sets.report()


def _parts(order: EpisodeOrder) -> Iterator[pandas.DataFrame]:
    """The episodes with their split in parts, all episodes of a task in one."""
    buckets = bucket_numbers(order.ranks, order.together)
    split_of = dict(zip(order.tasks["id"], order.tasks["split"], strict=True))
    for bucket in in_buckets(order.file, buckets, order.ranks, order.scratch):
        for part in parts_of(bucket, "task_id"):
            yield part.assign(split=part["task_id"].map(split_of))


def _labelled(part: pandas.DataFrame, *, replay_proves: bool) -> pandas.DataFrame:
    labelled, _ = label_episodes(part, replay_proves=replay_proves)
    return labelled.rename(columns={"id": "trace_id"})


BUCKET_ROWS = 8_000
BATCH_ROWS = 5_000
PART_ROWS = 1_000


def bucket_numbers(ranks: npt.NDArray[np.int64], together: npt.NDArray[Any], rows: int = BUCKET_ROWS) -> npt.NDArray[np.int64]:
    """The bucket of each row.

    Args:
        ranks: [N] the row's position in the order, from 0; -1 leaves the row out.
        together: [N] rows with equal values are in one bucket; they must be adjacent in the order.
        rows: The smallest size of a bucket, except the last.

    Returns:
        [N] such that sorting by bucket, then rank, gives the order. -1 where the rank is -1.
    """
    buckets = np.full(len(ranks), -1, dtype=np.int64)
    inside = np.flatnonzero(ranks >= 0)
    ordered = inside[np.argsort(ranks[inside], kind="stable")]
    number = begun = 0
    for place, row in enumerate(ordered):
        if place - begun >= rows and together[row] != together[ordered[place - 1]]:
            number, begun = number + 1, place
        buckets[row] = number
    return buckets


def in_buckets(
    path: Path, buckets: npt.NDArray[np.int64], ranks: npt.NDArray[np.int64], scratch: Path
) -> Iterator[pandas.DataFrame]:
    """The rows of a Parquet file in the order of their ranks, a bucket at a time.

    Args:
        path: The file, of N rows.
        buckets: [N] from `bucket_numbers`.
        ranks: [N] given to `bucket_numbers`.
        scratch: A folder for the buckets' files, which are deleted once read.
    """
    import pandas
    import pyarrow
    import pyarrow.parquet

    scratch.mkdir(parents=True, exist_ok=True)
    writers: dict[int, pyarrow.parquet.ParquetWriter] = {}
    begun = 0
    try:
        for batch in read_batches(path, BATCH_ROWS):
            here = slice(begun, begun + batch.num_rows)
            for number in np.unique(buckets[here][buckets[here] >= 0]).tolist():
                rows = np.flatnonzero(buckets[here] == number)
                table = pyarrow.Table.from_batches([batch]).take(rows).append_column("rank", [ranks[here][rows]])
                if number not in writers:
                    writers[number] = pyarrow.parquet.ParquetWriter(scratch / f"{number}.parquet", table.schema)
                writers[number].write_table(table)
            begun = here.stop
    finally:
        for writer in writers.values():
            writer.close()
    for number in sorted(writers):
        file = scratch / f"{number}.parquet"
        frame = pandas.read_parquet(file)
        file.unlink()
        yield frame.sort_values("rank").drop(columns="rank").reset_index(drop=True)


def parts_of(frame: pandas.DataFrame, together: str, rows: int = PART_ROWS) -> Iterator[pandas.DataFrame]:
    """A frame in parts of at least `rows` rows, except the last. Adjacent rows with equal values stay together."""
    values = frame[together].to_numpy()
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True)) + 1
    begun = 0
    for end in ends.tolist() if len(frame) else ():
        if end - begun >= rows or end == len(frame):
            yield frame.iloc[begun:end].reset_index(drop=True)
            begun = end
