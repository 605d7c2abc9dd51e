"""Collecting what rollout workers handed in."""

from __future__ import annotations

from typing import Any

from tasks.stage import Context, stage_task
from tracewheel.config import CollectSections
from tracewheel.rollout.collect import collect
from tracewheel.rollout.trajectory_queue import Batch


@stage_task("collect", code="tracewheel.rollout.collect", sections=CollectSections)
def collect_batch(context: Context[CollectSections], *, batch: Batch, iteration: int) -> dict[str, Any]:
    """The trajectories that an iteration claimed, as files."""
    return collect(context.config.rollout, batch, context.out)
