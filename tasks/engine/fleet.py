"""The rollout workers that a profile asks for."""

from __future__ import annotations

from pathlib import Path

from tracewheel.config import RetrainConfig, WorkerSections
from tracewheel.rollout.fleet import Fleet, LocalFleet
from tracewheel.rollout.trajectory_queue import TrajectoryQueue


def make_fleet(config: RetrainConfig, queue: TrajectoryQueue, logs: Path) -> Fleet:
    """The fleet that a profile asks for.

    Args:
        config: The profile.
        queue: What the workers work off.
        logs: The folder for their output; on a Ray cluster Ray's own logs hold it.

    Raises:
        ConfigError: it asks for a Ray cluster, and Ray is not installed.
    """
    if config.rollout.workers.kind == "ray":
        from tasks.engine.ray_fleet import RayFleet

        return RayFleet(WorkerSections.of(config), queue)
    return LocalFleet(WorkerSections.of(config), queue, logs)
