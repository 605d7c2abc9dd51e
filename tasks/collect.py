"""Collecting what rollout workers handed in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.run import Run
from tasks.stage import stage_task
from tracewheel.rollout.collect import collect
from tracewheel.rollout.trajectory_queue import Batch


@stage_task("collect", code="tracewheel.rollout.collect", sections=("rollout",))
def collect_batch(run: Run, out: Path, *, batch: Batch, iteration: int) -> dict[str, Any]:
    """The trajectories that an iteration claimed, as files."""
    return collect(run.config.rollout, batch, out)
