"""Writes the labelled episodes of the tasks in use, and the training sets.

Conversations do not fit into memory, so they are written in parts; all episodes of a task are in one part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.config.curation import SetsConfig
from tracewheel.core.ordered_map import OrderedMap
from tracewheel.curation.buckets import bucket_numbers, in_buckets, parts_of
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
