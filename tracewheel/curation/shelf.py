"""What memory has no room for when there are many tasks: it lies in a file, and memory holds where."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.types import Task
from tracewheel.curation.probes import Call

if TYPE_CHECKING:
    import pandas

TASK_COLUMNS = tuple(spec.name for spec in fields(Task))
STATES = ("initial_state", "goal")  # what is long of a task, and asked for of few
ROWS_AT_ONCE = 5000


class Shelf:
    """JSON values by key. One that is put again replaces the earlier one.

    Args:
        path: The file; what is there is replaced. It is of no use once the shelf is closed.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        self._places: dict[str, int] = {}
        self._end = 0

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        """The keys in order."""
        return iter(sorted(self._places))

    def put(self, key: str, value: Any) -> None:
        """Keep a value of JSON types."""
        line = json.dumps(value).encode() + b"\n"
        self._file.seek(self._end)
        self._file.write(line)
        self._places[key] = self._end
        self._end += len(line)

    def get(self, key: str) -> Any:
        """The value, None for a key that there is not."""
        if key not in self._places:
            return None
        self._file.seek(self._places[key])
        return json.loads(self._file.readline())

    def close(self) -> None:
        self._file.close()


class Solutions:
    """The shortest calls that are known to solve a task, by its id. They lie in a file.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._calls = Shelf(path)
        self._lengths: dict[str, int] = {}

    def add(self, found: Mapping[str, Sequence[Call]]) -> None:
        """Keep what is found where it is shorter than what is kept."""
        for task_id, calls in found.items():
            if task_id not in self._lengths or len(calls) < self._lengths[task_id]:
                self._lengths[task_id] = len(calls)
                self._calls.put(task_id, list(calls))

    def get(self, task_id: str) -> list[Call] | None:
        """The calls, None where none are known."""
        calls = self._calls.get(task_id)
        return None if calls is None else [(name, arguments) for name, arguments in calls]

    def close(self) -> None:
        self._calls.close()


class Tasks:
    """The tasks of all traces. Their records lie in a file; families and tiers are at hand.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._records = Shelf(path)
        self.families: dict[str, str] = {}
        self.tiers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._records

    def __iter__(self) -> Iterator[Task]:
        """All tasks in the order of their ids."""
        return (Task.from_record(self._records.get(task_id)) for task_id in self._records)

    def add(self, task: Task) -> None:
        """Keep a task."""
        self._records.put(task.id, task.to_record())
        self.families[task.id], self.tiers[task.id] = task.family, int(task.tier)

    def frame(self, ids: Collection[str], columns: Iterable[str] = TASK_COLUMNS) -> pandas.DataFrame:
        """The records of some tasks, a row each in the order given, with some of their columns."""
        import pandas

        names, rows, parts = list(columns), list[dict[str, Any]](), list[pandas.DataFrame]()
        for task_id in ids:
            record = self._records.get(task_id)
            rows.append({name: record[name] for name in names})
            if len(rows) == ROWS_AT_ONCE:
                parts.append(pandas.DataFrame(rows, columns=names))
                rows = []
        return pandas.concat([*parts, pandas.DataFrame(rows, columns=names)] if rows or not parts else parts, ignore_index=True)

    def close(self) -> None:
        self._records.close()
