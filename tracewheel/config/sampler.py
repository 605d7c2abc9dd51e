"""Sampling of tasks for an iteration."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tracewheel.config.base import Count, Share, Strict


class VariantsConfig(Strict):
    """When a failing task gets variants, made by the environment's task generator.

    A task whose success rate stays at or below `at_most` for `after` consecutive rounds of rollouts gets `per_task`
    variants. A variant is dropped once it has been solved, or failed, in `after` consecutive rounds. At most `limit`
    variants are active at a time.
    """

    after: Count = 2
    at_most: Share = 0.0
    per_task: Count = 2
    limit: Count = 64


class SamplerConfig(Strict):
    """Sampling of tasks by each task's Beta posterior of success.

    `difficulty` favours tasks solved less often than `target`; `learnability` weights by p(1-p); `uniform` ignores the
    posterior; `self_evolving` weights as `difficulty` does and adds `variants` of tasks that keep failing. `floor` is the
    minimum weight of a task, as a share of the largest. `pooling` is the number of attempts that the success of a task's
    family and tier counts for each of their tasks, 0 for none: with it a few rollouts of a family say which of its
    untried tasks to prefer.
    """

    kind: Literal["difficulty", "learnability", "uniform", "self_evolving"] = "difficulty"
    target: Share = 0.6
    floor: Share = 0.1
    pooling: Annotated[float, Field(ge=0.0)] = 0.0
    variants: VariantsConfig = VariantsConfig()
