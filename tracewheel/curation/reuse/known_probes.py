"""The probes of all tasks: those of earlier curations where they are kept, and new ones."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tracewheel.core.processes import OrderedMap, Ready
from tracewheel.curation.probes import FLAKY, NO_OP, Probe, Probed, in_parts, probe_part
from tracewheel.curation.reuse.earlier_results import CHECKED, EarlierResults, compare
from tracewheel.curation.reuse.result_table import Keys
from tracewheel.curation.task_records import Solutions, TaskRecords

if TYPE_CHECKING:
    import pyarrow

# Verdicts that are kept. Any other may be another one next time: the task is probed again in each curation.
KEPT = ("", NO_OP)
NEW_TASKS = 100  # in a part, for which other processes pay


def probes_of(tasks: TaskRecords, solutions: Solutions, mapped: OrderedMap, reuse: EarlierResults | None) -> dict[str, Probe]:
    """The probes of tasks by id, in the order of the ids.

    Args:
        tasks: The tasks.
        solutions: Known solutions.
        mapped: Probes in several processes.
        reuse: Where probes are kept. Results of flaky tasks are not.

    Raises:
        NotRepeatable: a task that is probed again has another probe than before.
    """
    parts = in_parts((task, solutions.get(task.id)) for task in tasks)
    if reuse is None:
        return dict(found for part in mapped(probe_part, parts) for found in part)
    waiting: deque[_Part] = deque()

    def work() -> Iterator[list[Probed] | Ready[list[tuple[str, Probe]]]]:
        for items in parts:
            part = _Part(items, reuse)
            waiting.append(part)
            few = len(part.new) < min(NEW_TASKS, len(items))
            yield Ready(probe_part(part.new)) if few else part.new

    probes = dict(found for made in mapped(probe_part, work()) for found in waiting.popleft().completed(made))
    reuse.without |= {("task_id", task_id) for task_id, probe in probes.items() if probe.verdict == FLAKY}
    return probes


class _Part:
    """Some tasks, and their probes that are kept.

    Args:
        items: Tasks with their known solutions.
        reuse: Where probes are kept.
    """

    def __init__(self, items: list[Probed], reuse: EarlierResults) -> None:
        self._items, self._reuse = items, reuse
        self._keys = _keys(items)
        places = reuse.probes.find(self._keys)
        known = np.flatnonzero(places >= 0)
        self._rows = reuse.probes.rows(places[known])
        self._row_of = np.full(len(items), -1, dtype=np.int64)
        self._row_of[known] = np.where(reuse.has_code(self._rows), np.arange(len(known)), -1)
        self._is_new: npt.NDArray[np.bool_] = self._row_of < 0
        self._is_new[known] |= reuse.checked(self._keys[known], CHECKED)
        self.new = [items[place] for place in np.flatnonzero(self._is_new).tolist()]

    def completed(self, made: list[tuple[str, Probe]]) -> list[tuple[str, Probe]]:
        """The probes of all tasks, given those of the new ones."""
        import pyarrow

        row_of = self._row_of[self._is_new]
        again = np.flatnonzero(row_of >= 0)
        rows = self._reuse.with_code(self._table(made))
        compare(self._rows.take(row_of[again]), rows.take(again), "task_id")
        stays = (row_of < 0) & np.array([probe.verdict in KEPT for _, probe in made], dtype=bool)
        self._reuse.probes.put(self._keys[self._is_new][stays], rows.filter(pyarrow.array(stays)))
        new, kept = iter(made), self._rows.to_pylist()
        return [
            next(new) if is_new else (task.id, _probe(kept[row]))
            for (task, _), is_new, row in zip(self._items, self._is_new.tolist(), self._row_of.tolist(), strict=True)
        ]

    def _table(self, made: list[tuple[str, Probe]]) -> pyarrow.Table:
        import pyarrow

        records = [
            {"task_id": task_id, "verifier": task.verifier, **{name: getattr(probe, name) for name in Probe.__slots__}}
            for (task_id, probe), (task, _) in zip(made, self.new, strict=True)
        ]
        schema = self._reuse.probes.schema
        return pyarrow.Table.from_pylist(records, schema=schema.remove(schema.get_field_index("code")))


def _probe(row: dict[str, str | bool]) -> Probe:
    return Probe(str(row["verdict"]), str(row["reason"]), bool(row["solution_tried"]))


def _keys(items: list[Probed]) -> Keys:
    """A key of each task and its known solution."""
    digests = [
        hashlib.blake2b(json.dumps([task.to_record(), solution]).encode(), digest_size=16).digest() for task, solution in items
    ]
    return np.frombuffer(b"".join(digests), dtype=np.uint64).reshape(-1, 2)
