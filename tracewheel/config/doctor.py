"""The doctor: thresholds of its checks, and which of them stop a run."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from tracewheel.config.base import Count, NotNegative, Share, Strict

CheckName = Literal[
    "held_out_use",
    "held_batches",
    "unread_logs",
    "observation_loss",
    "sampler_mismatch",
    "fidelity",
    "stale_adapter",
    "guard",
    "weak_start",
    "reward_hacking",
    "judge_drift",
    "flawed_success",
    "sandbox_findings",
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
    """Thresholds of a figure that should stay low: a warning from `warn` up, severe from `severe` up."""

    warn: NotNegative
    severe: NotNegative

    @model_validator(mode="after")
    def _in_order(self) -> Ceiling:
        if self.severe < self.warn:
            raise ValueError("a figure that should stay low: 'severe' must not be below 'warn'")
        return self


class Floor(Strict):
    """Thresholds of a figure that should stay high: a warning from `warn` down, severe from `severe` down."""

    warn: NotNegative
    severe: NotNegative

    @model_validator(mode="after")
    def _in_order(self) -> Floor:
        if self.severe > self.warn:
            raise ValueError("a figure that should stay high: 'severe' must not be above 'warn'")
        return self


class DoctorConfig(Strict):
    """Thresholds of the doctor's checks. They do not change what a run computes.

    `stop_on` lists the checks that stop a run on a severe finding. The run's state is kept: the same command resumes it
    once the check is removed from the list. Figures cover the last `window` iterations.

    - Shares of episodes: `truncation`; `unrecorded_calls` (recorded environments); `repetition`, an episode with a turn in
      which at least the share `repeated_phrases` of phrases is repeated.
    - `invented_tools`: share of calls. `flawed_success`: share of successes.
    - `zero_variance`: share of unsolved groups without a signal. From a share `solved` of solved groups up, the tasks are
      too easy.
    - `pass_at_k`: share of the first groups with at least one success.
    - `entropy`: relative to the start; ignored while the success of sampled episodes is above `mastery`.
    - `kl` and `sampler_mismatch`, in nats a token. By default the latter warns at `learner.mismatch.threshold` and is
      severe at five times that.
    - `unread_logs`: share of the records in quarantine.
    - `length`: growth factor of the episodes of the same tasks.
    - `fall`: how far validation success, or a grader, falls while the reward rises.
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
    unread_logs: Ceiling = Ceiling(warn=0.02, severe=0.2)
    length: Ceiling = Ceiling(warn=1.5, severe=2.5)
    fall: Ceiling = Ceiling(warn=0.03, severe=0.1)
