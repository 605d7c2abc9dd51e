"""The mismatch between sampler and trainer: from where on, and what is done about it."""

from __future__ import annotations

from typing import Literal

from tracewheel.config.base import Positive, Strict


class MismatchConfig(Strict):
    """What is done when the trainer gives a policy's tokens other log-probabilities than the sampler did.

    Only tokens of the policy that is updated are compared: those of earlier versions differ rightly. From a mean
    absolute difference of `threshold` nats a token on, `action` is taken. `warn` says so. `correct` makes that update
    around the trainer's own log-probabilities, each token weighed by trainer over sampler, at most `off_policy.cap`.
    `stop` ends the run before anything is written. The last two take one more pass over an update's tokens.
    """

    threshold: Positive = 0.02
    action: Literal["warn", "correct", "stop"] = "warn"
