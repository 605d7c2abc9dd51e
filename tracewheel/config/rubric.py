"""Rubrics: verifiers, objectives and penalties."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tracewheel.config.base import Count, KindConfig, NotNegative, Positive, Share, Strict


class RubricTerm(KindConfig):
    """A weighted verifier: a built-in name, `module:Class`, or `task` for the verifier that each task names; its arguments."""

    kind: str = "task"
    weight: Positive = 1.0

    @model_validator(mode="after")
    def _check_task(self) -> RubricTerm:
        if self.kind == "task" and self.args:
            raise ValueError("verifier 'task' takes no args: each task names its verifier, with the arguments")
        return self


class PartObjective(Strict):
    """An objective read from the breakdown: `success`, a verifier's kind, or `kind.part`, as in `workspace.untouched`.

    With weight 0 it is reported but not rewarded.
    """

    kind: Literal["part"] = "part"
    name: str
    part: str
    weight: NotNegative = 1.0


class CostObjective(Strict):
    """Low cost: from 1 for an episode that costs nothing down to 0 at `budget` or more, by `measure`.

    With `only_success` a failed episode gets 0, because giving up at once is also cheap.
    """

    kind: Literal["cost"] = "cost"
    name: str
    measure: Literal["turns", "calls", "generated_tokens", "trajectory_tokens"] = "generated_tokens"
    budget: Count
    only_success: bool = True
    weight: NotNegative = 1.0


ObjectiveConfig = Annotated[PartObjective | CostObjective, Field(discriminator="kind")]


class OverlongConfig(Strict):
    """DAPO's soft overlong punishment (Yu et al. 2025, arXiv:2503.14476, equation 13), in tokens that the episode generated.

    Nothing up to `max_tokens` - `cache`, then rising linearly to `weight` at `max_tokens` and above. `max_tokens` is the
    paper's L_max, `cache` its L_cache. The paper's rewards are -1 and 1; a `weight` of 0.5 is the same share of ours, 0
    and 1.
    """

    max_tokens: Count
    cache: Count
    weight: Positive = 0.5

    @model_validator(mode="after")
    def _check_cache(self) -> OverlongConfig:
        if self.cache > self.max_tokens:
            raise ValueError(
                f"cache ({self.cache}) is larger than max_tokens ({self.max_tokens}): the punishment would begin below 0"
            )
        return self


class RubricConfig(Strict):
    """How a trajectory is scored: a weighted mean of verifiers, less a penalty for malformed calls.

    The first verifier alone decides success; the others shape the reward. With `objectives` (success, safety, cost; each
    in [0, 1], higher is better) the reward is their weighted mean instead, and each is stored in the breakdown.
    `turn_rewards` replays each trajectory and rewards every turn with the progress it made.

    `malformed_penalty` is subtracted for each malformed call, up to 1 in all. It also takes a failed episode below 0:
    otherwise a policy that still fails every time would have no reason to write well-formed calls.

    What an environment returns as `Observation.reward` is added, times `process_weight`: 1, because an environment that
    returns rewards wants them used, and none that is built in does. `overlong` punishes long episodes. `flawed_penalty` is
    subtracted from a success with a flaw (see `tracewheel.scoring.flaws`); 0, because what counts as a flaw is a rule of
    thumb, and the doctor says first how many successes it concerns.

    A trajectory that takes longer to score than `verifier_seconds` is unscored, and the others are scored; null is no limit.
    """

    verifiers: Annotated[tuple[RubricTerm, ...], Field(min_length=1)] = (RubricTerm(),)
    objectives: tuple[ObjectiveConfig, ...] = ()
    turn_rewards: bool = False
    malformed_penalty: Share = 0.0
    process_weight: NotNegative = 1.0
    overlong: OverlongConfig | None = None
    flawed_penalty: Share = 0.0
    verifier_seconds: Positive | None = 300.0

    @model_validator(mode="after")
    def _check_objectives(self) -> RubricConfig:
        names = [objective.name for objective in self.objectives]
        if len(set(names)) < len(names):
            raise ValueError(f"objectives need distinct names, not {', '.join(names)}")
        if names and not any(objective.weight for objective in self.objectives):
            raise ValueError("no objective has a weight, so nothing would be rewarded")
        return self
