"""Stages of wheels between the warm start and reinforcement learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from tasks.engine.run import Policy, Run
from tracewheel.config import RetrainConfig
from tracewheel.config.base import Strict
from tracewheel.config.wheel_sections import STAGES
from tracewheel.core.store import Entry


class Played(NamedTuple):
    """How policies are played: the run with its profile, and the tasks."""

    run: Run
    curated: Entry


class WheelStage(Protocol):
    """What an entry point of the group `tracewheel.stages` names; its name is the section of the profile.

    A stage changes how the challenger is played from then on, so that a champion is a pair: that change, and an adapter.

    Attributes:
        Settings: The section's model.
    """

    Settings: type[Strict]

    def champion(self, played: Played, start: Mapping[str, Any]) -> Played:
        """How the champion is played that a run starts from (`start["champion"]`; none has nothing to change)."""
        ...

    def challenger(self, played: Played, policy: Policy) -> Played:
        """How the challenger is played, trained from `policy`. The work is done by stages of its own (`stage_task`)."""
        ...

    def ended(self, run: Run, verdict: Mapping[str, Any]) -> None:
        """The gate has judged, and the challenger is registered."""
        ...


def wheel_stages(config: RetrainConfig) -> list[WheelStage]:
    """The stages that a profile asks for, by the names of their sections."""
    return [STAGES[name]() for name in config.wheel_sections]


def as_champion(played: Played, start: Mapping[str, Any]) -> Played:
    """How the champion is played."""
    for stage in wheel_stages(played.run.config):
        played = stage.champion(played, start)
    return played


def as_challenger(played: Played, policy: Policy) -> Played:
    """How the challenger is played."""
    for stage in wheel_stages(played.run.config):
        played = stage.challenger(played, policy)
    return played
