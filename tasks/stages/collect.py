"""Collecting what rollout workers handed in."""

from __future__ import annotations

from typing import Any

from tasks.engine.stage import Call, Context, Expected, stage_task
from tracewheel.config import CollectSections
from tracewheel.rollout.collect import collect
from tracewheel.rollout.trajectory_queue import ClaimedGroups


def expected(call: Call, place: int) -> Expected:
    """As many episodes as an iteration orders."""
    episodes = call.run.config.episodes_per_iteration
    return Expected(episodes, {"episodes": episodes})


@stage_task("collect", code="tracewheel.rollout.collect", sections=CollectSections, expects=expected)
def collect_groups(context: Context[CollectSections], *, claimed: ClaimedGroups, iteration: int) -> dict[str, Any]:
    """The trajectories that an iteration claimed, as files."""
    return collect(context.config.rollout, claimed, context.out)
