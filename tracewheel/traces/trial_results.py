"""The result of a trial that logs lie in, as Harbor writes it: `result.json` of a folder above them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from tracewheel.core.errors import DataError
from tracewheel.core.foreign_folder import ForeignFolder
from tracewheel.core.types import Trace
from tracewheel.traces.quarantine import Quarantined

RESULT = "result.json"
LEVELS = 8
REWARD = "reward"


@dataclass(frozen=True)
class TrialResult:
    """What a trial's `result.json` says. `reward` is None where the verifier gave none: the trial is unscored."""

    task: str
    trial: str | None
    reward: float | None


class TrialResults:
    """Finds the result of the trial that a file belongs to; each folder is looked at once."""

    def __init__(self) -> None:
        self._known: dict[Path, TrialResult | None] = {}

    def of(self, path: Path) -> TrialResult | None:
        """The result in the nearest folder above a file; None of a file that belongs to no trial."""
        for folder in path.absolute().parents[:LEVELS]:
            if folder not in self._known:
                self._known[folder] = _read(folder / RESULT)
            if (found := self._known[folder]) is not None:
                return found
        return None


def _read(file: Path) -> TrialResult | None:
    try:
        value = orjson.loads(ForeignFolder(file.parent).read(file.name).content)
    except (DataError, ValueError):
        return None
    if not isinstance(value, dict) or "verifier_result" not in value or not isinstance(value.get("task_name"), str):
        return None
    verified: Any = value["verifier_result"]
    rewards = verified.get("rewards") if isinstance(verified, dict) else None
    reward = rewards.get(REWARD) if isinstance(rewards, dict) else None
    trial = value.get("trial_name")
    return TrialResult(
        value["task_name"],
        trial if isinstance(trial, str) else None,
        float(reward) if isinstance(reward, int | float) and reward == reward else None,
    )


def with_result(item: Trace | Quarantined, result: TrialResult | None) -> Trace | Quarantined:
    """A trace with the outcome and the task of its trial, where it has none of its own."""
    if result is None or isinstance(item, Quarantined):
        return item
    is_part = bool(item.info.get("side_chain") or item.info.get("parent"))
    return replace(
        item,
        outcome=result.reward if item.outcome is None and not is_part else item.outcome,
        task=item.task or (None if is_part else result.task),
        info={**item.info, **({"trial": result.trial} if result.trial else {})},
    )
