"""What is known of how often tasks are solved, and what a curation keeps of it for the next one.

A run reads all logs, among them those that an earlier run has read. So a trace counts once for a task: the first curation
that knows its outcome counts it, and each later one has it in the evidence already, decayed.
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
EVIDENCE_FILE, COUNTED_FILE = "evidence.json", "counted.parquet"
COUNTED_COLUMNS = ("trace_id", "task_id")


class Evidence(dict[str, tuple[float, float]]):
    """Decayed successes and failures by task id."""

    def observe(self, task_id: str, successes: float, failures: float, retain: float = 1.0) -> None:
        """Add outcomes of a task, of whose earlier evidence the share `retain` is kept. Leave unscored ones out.

        Raises:
            ValueError: these are no counts.
        """
        if not are_counts(successes, failures):
            raise ValueError(f"{task_id}: {successes} successes and {failures} failures are not counts")
        old_successes, old_failures = self.get(task_id, (0.0, 0.0))
        self[task_id] = (retain * old_successes + successes, retain * old_failures + failures)

    def decayed(self, share: float) -> Self:
        """The evidence shrunk to a share; that of which next to nothing is left is forgotten."""
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
        """Read what `to_json` made.

        Raises:
            DataError: it is something else; the message begins with `where`.
        """
        if not isinstance(value, Mapping):
            raise DataError(f"{where}: a mapping of task ids to [successes, failures] is expected, not {type(value).__name__}")
        evidence = cls()
        for task_id, pair in value.items():
            if not isinstance(pair, list) or len(pair) != 2 or not are_counts(*pair):
                raise DataError(f"{where}: the evidence of {task_id} is {pair!r}, not [successes, failures]")
            evidence[task_id] = (float(pair[0]), float(pair[1]))
        return evidence


@dataclass(frozen=True)
class KeptEvidence:
    """The evidence that a curation ended with.

    Attributes:
        evidence: Decayed successes and failures by task id.
        counted: Whose outcomes are in it, of whatever run: each pair of `trace_id` and `task_id` once. A trace of which another
            task is made by now, because its prompt is redacted otherwise for instance, counts for that one too.
    """

    evidence: Evidence
    counted: pandas.DataFrame

    @classmethod
    def of(cls, evidence: Evidence, *counted: pandas.DataFrame) -> Self:
        """Evidence with the pairs of all frames given, in an order that follows from them alone."""
        import pandas

        pairs = pandas.concat([pandas.DataFrame(columns=list(COUNTED_COLUMNS), dtype=str), *counted])
        pairs = pairs[list(COUNTED_COLUMNS)].drop_duplicates().sort_values(list(COUNTED_COLUMNS), ignore_index=True)
        return cls(evidence, pairs)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What a curation wrote to its folder; one that does not say what it has counted has counted nothing that is known.

        Raises:
            DataError: a file cannot be read, or is something else; the message names it.
        """
        path, counted = folder / EVIDENCE_FILE, folder / COUNTED_FILE
        evidence = Evidence.from_json(read_json(path), str(path))
        if not counted.is_file():
            return cls.of(evidence)
        table = read_table(counted)
        missing = [name for name in COUNTED_COLUMNS if name not in table]
        if missing:
            raise DataError(f"{counted}: no column '{missing[0]}'; it is to be the file that `tracewheel curate` wrote")
        return cls.of(evidence, table)

    def write(self, folder: Path) -> None:
        """Write both files into a folder."""
        import pyarrow
        import pyarrow.parquet

        write_json(folder / EVIDENCE_FILE, self.evidence.to_json())
        schema = pyarrow.schema([(name, pyarrow.string()) for name in COUNTED_COLUMNS])
        table = pyarrow.Table.from_pandas(self.counted, schema=schema, preserve_index=False)
        pyarrow.parquet.write_table(table, folder / COUNTED_FILE)

    def has_counted(self, episodes: pandas.DataFrame) -> pandas.Series[bool]:
        """Of which episodes (columns `id`, the trace's, and `task_id`) the outcome is in the evidence."""
        import pandas

        pairs = episodes[["id", "task_id"]].astype(str).set_axis(list(COUNTED_COLUMNS), axis=1)
        found = pairs.merge(self.counted, how="left", on=list(COUNTED_COLUMNS), indicator=True)["_merge"] == "both"
        return pandas.Series(found.to_numpy(), index=episodes.index)


def are_counts(*values: Any) -> bool:
    """Whether all are finite numbers from 0 on."""
    return all(isinstance(v, int | float | np.number) and not isinstance(v, bool) and 0 <= v < math.inf for v in values)
