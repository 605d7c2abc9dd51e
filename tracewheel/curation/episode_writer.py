"""Writes the labelled episodes of the tasks in use, and the training sets.

Conversations do not fit into memory, so they are written in parts; all episodes of a task are in one part. They come in
the order of tasks by an external bucket sort: rows are dealt into buckets, each a Parquet file, which are read one after the
other. Time is linear in the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tracewheel.config.curation import SetsConfig
from tracewheel.core.files import read_batches
from tracewheel.core.ordered_map import OrderedMap
from tracewheel.curation.curated_folder import EPISODES_FILE, SETS_FOLDER
from tracewheel.curation.labels import LABEL_COLUMNS, label_episodes, label_report
from tracewheel.curation.stage_sets import SetsWriter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas


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
        tasks: Records of the tasks in use, with `split`.
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
