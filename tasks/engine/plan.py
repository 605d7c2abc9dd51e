"""A run that computes nothing: it reads stored results, and placeholders count the work of the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.engine.drivers import OneByOne
from tasks.engine.stage import Call, Expected, StageTask
from tracewheel.core.store import Entry


@dataclass(frozen=True)
class PlannedCall:
    """A call of a stage: its entry or placeholder, and its units of work."""

    entry: Entry
    units: int
    stored: bool


class PlanDriver(OneByOne):
    """Answers calls whose results are not stored with placeholders.

    Calls with equal inputs share a result and count once.

    Args:
        folder: An empty folder, for the few files of placeholders that a flow reads.
    """

    planning = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls: dict[tuple[str, str], PlannedCall] = {}
        self.next: str | None = None  # the first result that is not stored

    def get(self, stage: StageTask[Any], call: Call) -> Entry:
        name = (stage.stage, call.key)
        if name not in self._calls:
            expected = stage.expects(call, len(self._calls))
            stored = call.stored(stage.stage)
            if stored is None:
                self.missing(call.label)
            entry = stored or self._placeholder(stage.stage, call.key, expected)
            self._calls[name] = PlannedCall(entry, expected.units, stored is not None)
        return self._calls[name].entry

    def missing(self, label: str) -> None:
        self.next = self.next or label

    def calls(self, stage: str) -> Iterator[PlannedCall]:
        """The calls of a stage."""
        return (planned for (name, _), planned in self._calls.items() if name == stage)

    def _placeholder(self, stage: str, key: str, expected: Expected) -> Entry:
        path = self._folder / f"{stage}-{key}"
        path.mkdir()
        if expected.write:
            expected.write(path)
        return Entry(stage, key, path, f"planned {stage} {key}", 0.0, expected.result)
