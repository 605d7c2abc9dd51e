"""Updating the policy, and finding the first learning rate by trials on the training tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tasks.engine.stage import Context, stage_task
from tracewheel.config import RateTrialSections, UpdateSections
from tracewheel.core.store import Entry
from tracewheel.learner.auto import says
from tracewheel.learner.backends.launch import release_processes
from tracewheel.learner.kept_learner import release_learner
from tracewheel.learner.mismatch import mismatch_warning
from tracewheel.learner.rate_trials import try_rates
from tracewheel.learner.solutions import SOLUTIONS_FILE
from tracewheel.learner.update import update
from tracewheel.learner.update_files import UpdateFiles


@contextlib.contextmanager
def kept_between_updates() -> Iterator[None]:
    """A block of updates; what they keep loaded is released at its end, for the stages that follow."""
    try:
        yield
    finally:
        release_learner()
        release_processes()


@stage_task("update", code="tracewheel.learner.update", sections=UpdateSections, packages=("llguidance",))
def update_policy(
    context: Context[UpdateSections],
    *,
    trajectories: list[Entry],
    scores: list[Entry],
    state: Entry,
    reference: Entry,
    iteration: int,
    solutions: Entry | None = None,
) -> dict[str, Any]:
    """One policy update on an iteration's trajectories. `state` is the previous update, or the start."""
    files = UpdateFiles.of_folders(
        [entry.path for entry in trajectories],
        [entry.path for entry in scores],
        state=state.path,
        reference=reference.path,
        out=context.out,
        solutions=solutions.path / SOLUTIONS_FILE if solutions else None,
    )
    if context.config.placement.share == "sleep":
        from tracewheel.engines.vllm_core import sleep_core
        from tracewheel.engines.vllm_remote import sleep_servers

        sleep_core()
        sleep_servers()
    metrics = update(context.config, files, iteration=iteration)
    if warning := mismatch_warning(context.config.learner.mismatch, metrics):
        context.reporter.say(f"update {iteration}, {warning}")
    if context.config.learner.kind == "auto" and iteration == 1:
        context.reporter.say(f"learner.kind auto: {says(metrics)}")
    return metrics


@stage_task("rate_trials", code="tracewheel.learner.rate_trials", sections=RateTrialSections)
def try_learning_rates(
    context: Context[RateTrialSections], *, trajectories: Entry, scores: Entry, state: Entry
) -> dict[str, Any]:
    """One update from the starting policy at each rate, and the rate that is chosen."""
    files = UpdateFiles.of_folders([trajectories.path], [scores.path], state=state.path, reference=state.path, out=context.out)
    found = try_rates(context.config, files)
    tried = ", ".join(f"{trial['rate']:.3g}: KL {trial['kl']:.3g}" for trial in found["trials"])
    context.reporter.say(f"learning rate {found['learning_rate']:.3g} (nats a token after one update, by rate: {tried})")
    return found
