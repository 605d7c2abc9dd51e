"""More rows than memory holds, handed out in an order that is known only once all have been seen.

Rows are dealt into buckets, each a Parquet file of its own; then one bucket after the other is read. Reading and writing
are linear in the rows, and memory holds one bucket.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas

BUCKET_ROWS = 8_000
BATCH_ROWS = 5_000
PART_ROWS = 1_000


def bucket_numbers(ranks: npt.NDArray[np.int64], together: npt.NDArray[Any], rows: int = BUCKET_ROWS) -> npt.NDArray[np.int64]:
    """The bucket of each row.

    Args:
        ranks: [N] the row's place in the order, from 0; -1: it is in none.
        together: [N] rows that are alike in this are in one bucket; they lie side by side in the order.
        rows: How many a bucket has, about.

    Returns:
        [N]; buckets by number, and rows by rank within a bucket, are the rows in their order. -1 where the rank is.
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
        buckets: [N] as `bucket_numbers` gives them.
        ranks: [N] as it was given.
        scratch: A folder to write into; what is written there is deleted again.
    """
    import pandas
    import pyarrow
    import pyarrow.parquet

    source = pyarrow.parquet.ParquetFile(path)
    scratch.mkdir(parents=True, exist_ok=True)
    writers: dict[int, pyarrow.parquet.ParquetWriter] = {}
    begun = 0
    try:
        for batch in source.iter_batches(batch_size=BATCH_ROWS):
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
    """A frame in parts of so many rows, or a few more: rows that are alike in a column and lie side by side are in one part."""
    values = frame[together].to_numpy()
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True)) + 1
    begun = 0
    for end in ends.tolist() if len(frame) else ():
        if end - begun >= rows or end == len(frame):
            yield frame.iloc[begun:end].reset_index(drop=True)
            begun = end
