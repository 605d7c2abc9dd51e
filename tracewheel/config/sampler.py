"""Which tasks an iteration rolls out."""

from __future__ import annotations

from typing import Literal

from tracewheel.config.base import Count, Share, Strict


class VariantsConfig(Strict):
    """When a failing task comes back as variants, which the environment's task generator makes.

    A task whose success stays at or below `at_most` for `after` rounds of rollouts in a row gets
    `per_task` variants beside it. A variant goes when it has been solved, or failed, in `after` rounds in
    a row; at most `limit` are offered at a time.
    """

    after: Count = 2
    at_most: Share = 0.0
    per_task: Count = 2
    limit: Count = 64


class SamplerConfig(Strict):
    """Which tasks an iteration rolls out, by each task's Beta posterior of success.

    `difficulty` favours tasks solved less often than `target`; `learnability` weighs by p(1-p);
    `uniform` ignores the posterior; `self_evolving` weighs as `difficulty` does, and tasks that keep
    failing come back with `variants`. `decay` is the share of all evidence that is kept from run to run,
    `retain` the share of a task's evidence that is kept when it is rolled out again, because the policy
    has changed since. `floor` is the least weight of a task, as a share of the largest.
    """

    kind: Literal["difficulty", "learnability", "uniform", "self_evolving"] = "difficulty"
    target: Share = 0.6
    decay: Share = 0.5
    retain: Share = 0.5
    floor: Share = 0.1
    variants: VariantsConfig = VariantsConfig()
