"""The doctor's part of a profile: what stops a run, and from where on a figure is called sick."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from tracewheel.config.base import Count, NotNegative, Share, Strict

CheckName = Literal[
    "observation_loss",
    "sampler_mismatch",
    "stale_adapter",
    "weak_start",
    "reward_hacking",
    "flawed_success",
    "zero_variance",
    "entropy_collapse",
    "kl_explosion",
    "length_explosion",
    "truncation",
    "invented_tools",
    "unrecorded_calls",
    "repetition",
]


class Ceiling(Strict):
    """A figure that is to stay low: from `warn` on it is a warning, from `severe` on it is severe."""

    warn: NotNegative
    severe: NotNegative

    @model_validator(mode="after")
    def _in_order(self) -> Ceiling:
        if self.severe < self.warn:
            raise ValueError("of a figure that is to stay low, 'severe' is not below 'warn'")
        return self


class Floor(Strict):
    """A figure that is to stay high: at `warn` and below it is a warning, at `severe` and below it is severe."""

    warn: NotNegative
    severe: NotNegative

    @model_validator(mode="after")
    def _in_order(self) -> Floor:
        if self.severe > self.warn:
            raise ValueError("of a figure that is to stay high, 'severe' is not above 'warn'")
        return self


class DoctorConfig(Strict):
    """What the doctor calls sick. None of it changes what a run computes.

    `stop_on` names the checks that stop a run when they find something severe; its state is kept, and the
    same command goes on once the check is taken from the list. Figures are of the last `window` iterations.

    Shares: `truncation` of episodes; `invented_tools` of calls; `unrecorded_calls` of the episodes in a recorded
    environment; `repetition` of episodes, and `repeated_phrases` is the share of a turn from where on it counts
    as one; `flawed_success` of successes; `zero_variance` of groups that give no signal without being solved,
    and `solved` is the share of solved ones from where on the tasks are too easy; `pass_at_k` of the first
    groups, how many hold a success; `entropy` of what it was at the start, which is no fault while the success
    of the sampled episodes is above `mastery`.
    Nats a token: `kl` and `sampler_mismatch`; the latter, unless it is set, warns from `learner.mismatch.threshold`
    on and is severe from five times that. `length` is by which factor episodes of the same tasks grow.
    `fall` is how far validation success, or a grader, falls while the reward goes up.
    """

    stop_on: tuple[CheckName, ...] = ()
    window: Count = 3
    truncation: Ceiling = Ceiling(warn=0.1, severe=0.3)
    invented_tools: Ceiling = Ceiling(warn=0.02, severe=0.1)
    unrecorded_calls: Ceiling = Ceiling(warn=0.1, severe=0.3)
    repetition: Ceiling = Ceiling(warn=0.1, severe=0.3)
    repeated_phrases: Share = 0.5
    flawed_success: Ceiling = Ceiling(warn=0.25, severe=0.5)
    zero_variance: Ceiling = Ceiling(warn=0.5, severe=0.8)
    solved: Share = 0.9
    pass_at_k: Floor = Floor(warn=0.2, severe=0.05)
    entropy: Floor = Floor(warn=0.2, severe=0.05)
    mastery: Share = 0.85
    kl: Ceiling = Ceiling(warn=0.3, severe=1.0)
    sampler_mismatch: Ceiling | None = None
    length: Ceiling = Ceiling(warn=1.5, severe=2.5)
    fall: Ceiling = Ceiling(warn=0.03, severe=0.1)
