"""Updating the policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.run import Run
from tasks.stage import stage_task
from tracewheel.core.store import Entry
from tracewheel.learner.mismatch import sentence
from tracewheel.learner.update import update
from tracewheel.policy.adapters import weights_folder


@stage_task("update", code="tracewheel.learner.update", sections=("seed", "threads", "policy", "learner", "training"))
def update_policy(
    run: Run, out: Path, *, trajectories: list[Entry], scores: list[Entry], state: Entry, reference: Entry, iteration: int
) -> dict[str, Any]:
    """One policy update on an iteration's trajectories. `state` is the previous update, or the start."""
    metrics = update(
        run.config,
        [entry.path / "trajectories.parquet" for entry in trajectories],
        [entry.path / "scores.parquet" for entry in scores],
        state.path,
        weights_folder(reference.path),
        out,
        iteration=iteration,
    )
    if said := sentence(run.config.learner.mismatch, metrics):
        run.reporter.say(f"update {iteration}, {said}")
    return metrics
