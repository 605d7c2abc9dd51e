"""Collecting what rollout workers handed in."""

from __future__ import annotations

from typing import Any

from tasks.engine.stage import Context, stage_task
from tracewheel.config import CollectSections
from tracewheel.rollout.collect import collect
from tracewheel.rollout.trajectory_queue import ClaimedGroups


@stage_task("collect", code="tracewheel.rollout.collect", sections=CollectSections)
def collect_groups(context: Context[CollectSections], *, claimed: ClaimedGroups, iteration: int) -> dict[str, Any]:
    """The trajectories that an iteration claimed, as files."""
    metrics = collect(claimed, context.out)
    if words := metrics.get("without_score"):
        context.reporter.say(f"rollout {iteration}: {words}")
    return metrics
