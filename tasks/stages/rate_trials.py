"""Finding the first learning rate by trials on the training tasks."""

from __future__ import annotations

from typing import Any

from tasks.engine.stage import Context, stage_task
from tracewheel.config import RateTrialSections
from tracewheel.core.store import Entry
from tracewheel.learner.rate_trials import try_rates
from tracewheel.learner.update_files import UpdateFiles


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
