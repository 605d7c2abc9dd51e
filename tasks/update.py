"""Updating the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.run import Run
from tasks.stage import stage_task
from tracewheel.store import Entry
from tracewheel.update import update


@stage_task("update", code="tracewheel.update", sections=("seed", "threads", "policy", "learner", "training"))
def update_policy(
    run: Run, out: Path, *, trajectories: Entry, scores: Entry, state: Entry, reference: Entry, iteration: int
) -> dict[str, Any]:
    """One policy update on an iteration's trajectories. `state` is the previous update, or the start."""
    return update(
        run.config,
        trajectories.path / "trajectories.parquet",
        scores.path / "scores.parquet",
        state.path,
        reference.path / "adapter",
        out,
        iteration=iteration,
    )
