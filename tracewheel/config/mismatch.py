"""Mismatch between sampler and trainer: threshold and action."""

from __future__ import annotations

from typing import Literal

from tracewheel.config.base import Positive, Strict


class MismatchConfig(Strict):
    """What to do when trainer and sampler give a policy's tokens different log-probabilities.

    Only tokens of the policy being updated are compared: earlier versions are expected to differ. `action` is taken when
    the mean absolute difference reaches `threshold` nats a token. `warn` logs it. `correct` makes the update around the
    trainer's own log-probabilities and weights each token by trainer over sampler, at most `off_policy.cap`. `stop` ends
    the run before anything is written. `correct` and `stop` cost one more forward pass over an update's tokens.
    """

    threshold: Positive = 0.02
    action: Literal["warn", "correct", "stop"] = "warn"
