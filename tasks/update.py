"""Updating the policy."""

from __future__ import annotations

from typing import Any

from tasks.stage import Context, stage_task
from tracewheel.config import UpdateSections
from tracewheel.core.store import Entry
from tracewheel.learner.mismatch import sentence
from tracewheel.learner.update import update
from tracewheel.policy.adapters import weights_folder
from tracewheel.rollout.rollout import TRAJECTORIES_FILE
from tracewheel.scoring.score import SCORES_FILE


@stage_task("update", code="tracewheel.learner.update", sections=UpdateSections)
def update_policy(
    context: Context[UpdateSections],
    *,
    trajectories: list[Entry],
    scores: list[Entry],
    state: Entry,
    reference: Entry,
    iteration: int,
) -> dict[str, Any]:
    """One policy update on an iteration's trajectories. `state` is the previous update, or the start."""
    metrics = update(
        context.config,
        [entry.path / TRAJECTORIES_FILE for entry in trajectories],
        [entry.path / SCORES_FILE for entry in scores],
        state.path,
        weights_folder(reference.path),
        context.out,
        iteration=iteration,
    )
    if said := sentence(context.config.learner.mismatch, metrics):
        context.reporter.say(f"update {iteration}, {said}")
    return metrics
