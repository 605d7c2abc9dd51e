"""Mismatch between sampler and trainer: thresholds and action."""

from __future__ import annotations

from typing import Literal

from tracewheel.config.base import Positive, Strict


class MismatchConfig(Strict):
    """What to do when trainer and sampler give a policy's tokens different log-probabilities.

    `correct` makes every update around the trainer's own log-probabilities and weights each token by trainer over sampler,
    as `off_policy` says: by default per token, at most 2 (truncated importance sampling, Yao et al. 2025). `warn` changes
    no update. `auto` corrects for every engine but the transformers engine, whose log-probabilities are the trainer's to
    rounding; imitation and DPO weigh no token by a ratio, so there it warns. `stop` ends the run above `threshold`.

    Only tokens of the policy being updated are compared: earlier versions are expected to differ. `threshold` is the mean
    absolute difference, in nats a token, that is warned about. Above 1 nat a token the sampler serves another model, and
    the run ends, whatever `action` says except `warn`. Both ends are decided by the mean without the largest 1% of the
    differences, so that no outlier ends a run. `correct` and `stop` cost one more forward pass over an update's tokens.
    """

    threshold: Positive = 0.02
    action: Literal["auto", "warn", "correct", "stop"] = "auto"
