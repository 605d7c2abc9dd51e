"""How trajectories are scored."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tracewheel.config.base import Count, NotNegative, Positive, Share, Strict


class RubricTerm(Strict):
    """One verifier of a rubric: a built-in name, `module:Class`, or `task` for the one each task names."""

    kind: str = "task"
    weight: Positive = 1.0


class PartObjective(Strict):
    """An objective that is a part of the breakdown: `success`, a verifier's kind, or `kind.part` (`workspace.untouched`).

    With weight 0 it is reported, and no reward.
    """

    kind: Literal["part"] = "part"
    name: str
    part: str
    weight: NotNegative = 1.0


class CostObjective(Strict):
    """Thrift: 1 for an episode that costs nothing, 0 for one that costs `budget` or more, by `measure`.

    With `only_success` a failed episode gets 0: to give up at once would be thrifty too.
    """

    kind: Literal["cost"] = "cost"
    name: str
    measure: Literal["turns", "calls", "generated_tokens", "trajectory_tokens"] = "generated_tokens"
    budget: Count
    only_success: bool = True
    weight: NotNegative = 1.0


ObjectiveConfig = Annotated[PartObjective | CostObjective, Field(discriminator="kind")]


class RubricConfig(Strict):
    """How a trajectory is scored: a weighted mean of verifiers, less a penalty for malformed calls.

    The first verifier alone says whether an episode is a success; the others shape the reward. With
    `objectives` (success, safety, cost; each from 0 to 1, more is better) the reward is their weighted
    mean instead, and each is kept beside it. `turn_rewards` replays each trajectory and gives every turn
    the progress it made.
    """

    verifiers: Annotated[tuple[RubricTerm, ...], Field(min_length=1)] = (RubricTerm(),)
    objectives: tuple[ObjectiveConfig, ...] = ()
    turn_rewards: bool = False
    malformed_penalty: Share = 0.0

    @model_validator(mode="after")
    def _objectives_fit(self) -> RubricConfig:
        names = [objective.name for objective in self.objectives]
        if len(set(names)) < len(names):
            raise ValueError(f"objectives need names of their own, not {', '.join(names)}")
        if names and not any(objective.weight for objective in self.objectives):
            raise ValueError("no objective has a weight: nothing would be rewarded")
        return self
