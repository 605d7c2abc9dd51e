"""Successes and failures of each task, decayed from run to run, and what one curation keeps of them for the next.

A run reads all logs, including those that earlier runs have read. A trace therefore counts once for a task: in the first
curation that knows its outcome. Later curations find it in the earlier counts, decayed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json, read_table, write_json

if TYPE_CHECKING:
    import pandas

NEGLIGIBLE = 0.01
COUNTS_FILE, COUNTED_FILE = "evidence.json", "counted.parquet"
COUNTED_COLUMNS = ("trace_id", "task_id")


class PassCounts(dict[str, tuple[float, float]]):
    """Decayed successes and failures by task id."""

    def observe(self, task_id: str, successes: float, failures: float, retain: float = 1.0) -> None:
        """Add outcomes of a task and keep the share `retain` of its earlier counts. Leave unscored episodes out.

        Raises:
            ValueError: `successes` or `failures` is not a count.
        """
        if not are_counts(successes, failures):
            raise ValueError(f"{task_id}: {successes} successes and {failures} failures are not counts")
        old_successes, old_failures = self.get(task_id, (0.0, 0.0))
        self[task_id] = (retain * old_successes + successes, retain * old_failures + failures)

    def decayed(self, share: float) -> Self:
        """The counts shrunk to a share, without tasks whose sum falls below `NEGLIGIBLE`."""
        kept = {task_id: (share * successes, share * failures) for task_id, (successes, failures) in self.items()}
        return type(self)({task_id: pair for task_id, pair in kept.items() if sum(pair) >= NEGLIGIBLE})

    def posterior(self, task_id: str) -> tuple[float, float]:
        """(alpha, beta) of the task's Beta posterior; (1, 1) for a task not yet tried."""
        successes, failures = self.get(task_id, (0.0, 0.0))
        return 1.0 + successes, 1.0 + failures

    def to_json(self) -> dict[str, list[float]]:
        """`{task id: [successes, failures]}`, in the order of the ids."""
        return {task_id: list(pair) for task_id, pair in sorted(self.items())}

    @classmethod
    def from_json(cls, value: Any, where: str = "evidence") -> Self:
        """Read what `to_json` returned.

        Raises:
            DataError: `value` has another form; the message begins with `where`.
        """
        if not isinstance(value, Mapping):
            raise DataError(f"{where}: a mapping of task ids to [successes, failures] is expected, not {type(value).__name__}")
        counts = cls()
        for task_id, pair in value.items():
            if not isinstance(pair, list) or len(pair) != 2 or not are_counts(*pair):
                raise DataError(f"{where}: the evidence of {task_id} is {pair!r}, not [successes, failures]")
            counts[task_id] = (float(pair[0]), float(pair[1]))
        return counts


@dataclass(frozen=True)
class KeptPassCounts:
    """What one curation keeps for the next.

    Attributes:
        counts: Decayed successes and failures by task id.
        counted: The outcomes in `counts`, of all runs: each pair of `trace_id` and `task_id` once. A trace that now belongs to
            another task, for instance because its prompt is redacted differently, counts for that task too.
    """

    counts: PassCounts
    counted: pandas.DataFrame

    @classmethod
    def of(cls, counts: PassCounts, *counted: pandas.DataFrame) -> Self:
        """Counts with the pairs of all given frames, sorted."""
        import pandas

        pairs = pandas.concat([pandas.DataFrame(columns=list(COUNTED_COLUMNS), dtype=str), *counted])
        pairs = pairs[list(COUNTED_COLUMNS)].drop_duplicates().sort_values(list(COUNTED_COLUMNS), ignore_index=True)
        return cls(counts, pairs)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read what a curation wrote to its folder. Without counted.parquet no trace has been counted.

        Raises:
            DataError: a file cannot be read or has another form; the message names it.
        """
        path, counted = folder / COUNTS_FILE, folder / COUNTED_FILE
        counts = PassCounts.from_json(read_json(path), str(path))
        if not counted.is_file():
            return cls.of(counts)
        table = read_table(counted)
        missing = [name for name in COUNTED_COLUMNS if name not in table]
        if missing:
            raise DataError(f"{counted}: no column '{missing[0]}'; name the file that `tracewheel curate` wrote")
        return cls.of(counts, table)

    def write(self, folder: Path) -> None:
        """Write both files into a folder."""
        import pyarrow
        import pyarrow.parquet

        write_json(folder / COUNTS_FILE, self.counts.to_json())
        schema = pyarrow.schema([(name, pyarrow.string()) for name in COUNTED_COLUMNS])
        table = pyarrow.Table.from_pandas(self.counted, schema=schema, preserve_index=False)
        pyarrow.parquet.write_table(table, folder / COUNTED_FILE)

    def has_counted(self, episodes: pandas.DataFrame) -> pandas.Series[bool]:
        """Whether the outcome of each episode (columns `id`, the trace's, and `task_id`) is in the counts."""
        import pandas

        pairs = episodes[["id", "task_id"]].astype(str).set_axis(list(COUNTED_COLUMNS), axis=1)
        found = pairs.merge(self.counted, how="left", on=list(COUNTED_COLUMNS), indicator=True)["_merge"] == "both"
        return pandas.Series(found.to_numpy(), index=episodes.index)


def are_counts(*values: Any) -> bool:
    """Whether all values are finite numbers of at least 0."""
    return all(isinstance(v, int | float | np.number) and not isinstance(v, bool) and 0 <= v < math.inf for v in values)
