"""Records of many tasks in files: memory holds only their positions."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel.core.types import Task

if TYPE_CHECKING:
    import pandas

TASK_COLUMNS = tuple(spec.name for spec in fields(Task))
STATE_COLUMNS = ("initial_state", "goal")  # the long ones, needed for few tasks
ROWS_AT_ONCE = 5000
Call = tuple[str, dict[str, Any]]  # a tool and its arguments


class JsonFile:
    """JSON values by key. A later value replaces an earlier one.

    Args:
        path: The file; an existing one is replaced. It has no use once this object is closed.
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
        """The keys, sorted."""
        return iter(sorted(self._places))

    def put(self, key: str, value: Any) -> None:
        """Store a value of JSON types."""
        line = json.dumps(value).encode() + b"\n"
        self._file.seek(self._end)
        self._file.write(line)
        self._places[key] = self._end
        self._end += len(line)

    def get(self, key: str) -> Any:
        """The value, None for an unknown key."""
        if key not in self._places:
            return None
        self._file.seek(self._places[key])
        return json.loads(self._file.readline())

    def close(self) -> None:
        self._file.close()


class Solutions:
    """The shortest calls that are known to solve each task, in a file.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._calls = JsonFile(path)
        self._lengths: dict[str, int] = {}

    def add(self, found: Mapping[str, Sequence[Call]]) -> None:
        """Store solutions by task id where they are shorter than the stored ones."""
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


class TaskRecords:
    """The tasks of all traces, in a file; families and tiers also in memory.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._records = JsonFile(path)
        self.families: dict[str, str] = {}
        self.tiers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._records

    def __iter__(self) -> Iterator[Task]:
        """All tasks in the order of their ids."""
        return (self.task(task_id) for task_id in self._records)

    def task(self, task_id: str) -> Task:
        """A task by its id."""
        return Task.from_record(self._records.get(task_id))

    def add(self, task: Task) -> None:
        """Store a task."""
        self._records.put(task.id, task.to_record())
        self.families[task.id], self.tiers[task.id] = task.family, int(task.tier)

    def frame(self, ids: Collection[str], columns: Iterable[str] = TASK_COLUMNS) -> pandas.DataFrame:
        """The records of some tasks as rows in the given order, with some of their columns."""
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
