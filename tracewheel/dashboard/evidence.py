"""What the gate of a run decided on, and what of the profile is not as in the run before."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from tracewheel.comparison.differences import flat, setting_differences
from tracewheel.comparison.finished_run import RL, FinishedRun
from tracewheel.comparison.paired import paired_differences
from tracewheel.core.errors import DataError, TracewheelError
from tracewheel.core.files import read_json, read_table
from tracewheel.core.run_record import CONFIG_FILE, RunRecord
from tracewheel.evaluation.changes import CHANGES_FILE
from tracewheel.evaluation.evaluate import RESULTS_FILE


def family_differences(run: FinishedRun) -> dict[str, Any]:
    """The paired differences by family between the policy after RL and the baseline; empty where one is not known."""
    ours = run.evaluation(RL) if run.gate else None
    theirs = run.evaluation(run.baseline) if run.gate else None
    if ours is None or theirs is None:
        return {}
    weight = float((run.settings.get("gate") or {}).get("greedy_weight", 0.5))
    try:
        return _differences(ours.path / RESULTS_FILE, theirs.path / RESULTS_FILE, weight)
    except TracewheelError:
        return {}


@functools.lru_cache(maxsize=256)
def _differences(ours: Path, theirs: Path, weight: float) -> dict[str, Any]:
    """Stored results do not change, so what was computed once stays."""
    return paired_differences(read_table(ours), read_table(theirs), greedy_weight=weight)


def changes_of(run: FinishedRun) -> list[dict[str, Any]]:
    """The tasks that the gate's comparison gained and lost, the lost ones first; `entry` and `part` are added to each side."""
    path = run.record.path / CHANGES_FILE
    try:
        rows = read_json(path) if path.is_file() else []
    except DataError:
        return []
    for row in rows:
        for side in ("challenger", "baseline"):
            row[side]["entry"], row[side]["part"] = str(row[side].get("file", "")).split("/")[:2]
    return list(rows)


def earlier_run(run: FinishedRun, before: str = "") -> tuple[str, FinishedRun] | None:
    """What a run is compared with, and why: the run of the champion that it started from, else the one before it.

    Args:
        run: The run.
        before: Id of the run before it in its folder; "" where it is the first.
    """
    parent = str((run.lineage.get("parent") or {}).get("run_id") or "")
    for other, why in ((parent, "the run whose champion it started from"), (before, "the run before it in this folder")):
        if other and other != run.run_id and (run.work_dir / other / CONFIG_FILE).is_file():
            return why, FinishedRun(RunRecord(run.work_dir, other))
    return None


def settings_changed(run: FinishedRun, other: FinishedRun) -> list[dict[str, Any]]:
    """The settings that differ: `name` and `values`, of the other run and of this one."""
    try:
        return setting_differences([other.settings, run.settings])
    except (DataError, OSError):
        return []


def settings_of(run: FinishedRun) -> dict[str, Any]:
    """The resolved profile with dotted names; empty where it cannot be read."""
    try:
        return flat(run.settings)
    except (DataError, OSError):
        return {}
