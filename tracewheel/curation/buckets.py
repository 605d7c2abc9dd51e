"""External bucket sort: reads the rows of a Parquet file in a given order, with one bucket in memory.

Rows are dealt into buckets, each a Parquet file; then the buckets are read one after the other. Time is linear in the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tracewheel.core.files import read_batches

if TYPE_CHECKING:
    import pandas

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
