"""The rollout workers that a profile asks for."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from tracewheel.config import RetrainConfig, WorkerSections
from tracewheel.core.errors import ConfigError
from tracewheel.core.kind_table import KindTable
from tracewheel.rollout.fleet import Fleet
from tracewheel.rollout.trajectory_queue import TrajectoryQueue

FLEETS = KindTable("tracewheel.fleets", {"local": "tracewheel.rollout.fleet:LocalFleet"})


def make_fleet(config: RetrainConfig, queue: TrajectoryQueue, logs: Path) -> Fleet:
    """The fleet that a profile asks for.

    Args:
        config: The profile.
        queue: What the workers work off.
        logs: The folder for their output.

    Raises:
        ConfigError: its wheel is not installed.
    """
    check_fleet(config)
    return cast(Fleet, FLEETS[config.rollout.workers.kind](WorkerSections.of(config), queue, logs))


def check_fleet(config: RetrainConfig) -> None:
    """Check that there are such workers, before anything is computed.

    Raises:
        ConfigError: their wheel is not installed.
    """
    kind = config.rollout.workers.kind
    if config.rollout.mode == "async" and kind not in FLEETS:
        raise ConfigError(
            f"rollout.workers.kind: '{kind}' comes with the wheel tracewheel-scale, which is not installed: "
            "pip install ./plugins/scale"
        )
