"""Stages of wheels between the warm start and reinforcement learning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tasks.engine.run import Policy, Run
from tasks.tracking.champion import known_champion
from tracewheel.config import RetrainConfig
from tracewheel.config.base import Strict
from tracewheel.config.loading import read_values
from tracewheel.config.wheel_sections import STAGES, stages_among
from tracewheel.core.errors import ConfigError
from tracewheel.core.run_record import CONFIG_FILE
from tracewheel.core.store import Entry
from tracewheel.environments import ServedPrompt, served_prompt


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

    def served(self, config: RetrainConfig, run_id: str) -> ServedPrompt | None:
        """What `serve` does to programs' requests while the champion is served that a run promoted; None: nothing."""
        ...

    def delivered(self, config: RetrainConfig, champion: str, say: Callable[[str], None]) -> None:
        """MLflow has what runs logged: bring it what this stage has of them, and of the run `champion` ("": none) as champion.

        It is called again whenever either may have changed, so what MLflow missed comes later; it raises nothing.
        """
        ...


def wheel_stages(config: RetrainConfig) -> list[WheelStage]:
    """The stages that a profile asks for, by the names of their sections."""
    return [STAGES[name]() for name in config.wheel_sections]


def bring(config: RetrainConfig, say: Callable[[str], None]) -> None:
    """Have the stages bring MLflow to what the work folder says: see `WheelStage.delivered`."""
    known = known_champion(config.work_dir) if config.wheel_sections else None
    for stage in wheel_stages(config):
        stage.delivered(config, known["run_id"] if known else "", say)


def check_whole(config: RetrainConfig, run_id: str) -> None:
    """Check that the profile has the stages that a run had whose policy is champion.

    Raises:
        ConfigError: it lacks one, and would play the adapter without the other half of the pair.
    """
    stored = Path(config.work_dir) / run_id / CONFIG_FILE
    had = read_values(stored) if run_id and stored.is_file() else {}
    of_wheels = stages_among(had.keys() - RetrainConfig.model_fields.keys())
    if missing := sorted(set(of_wheels).difference(config.wheel_sections)):
        raise ConfigError(
            f"the champion of run {run_id} was promoted with section {missing[0]}, which this profile lacks, and would be "
            "played without it. Put the section back, or restore an adapter alone with `tracewheel champion rollback`"
        )


def served_with(config: RetrainConfig, run_id: str = "") -> ServedPrompt | None:
    """What is done to programs' requests: what belongs to the champion of a run, else what the profile's environment says.

    Raises:
        ConfigError: the profile lacks what the champion was promoted with.
    """
    check_whole(config, run_id)
    found = [served for stage in wheel_stages(config) if run_id and (served := stage.served(config, run_id))]
    own = "environment" in config.model_fields_set
    return found[-1] if found else served_prompt(config.environment.spec) if own else None


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
