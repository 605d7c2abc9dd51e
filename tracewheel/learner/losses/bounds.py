"""Bounds on log-ratios, so that no token makes a loss or a gradient overflow.

float32 overflows at e^88.7, and an overflowed ratio times a gradient of 0 is NaN. A bound of 20 nats (a ratio of 5e8; also
verl's) is far outside every clip range, so it changes no token that has anything to say.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

LOG_RATIO_BOUND = 20.0
# A token counts the reference's probability at most e^5 = 148 times the policy's: K3 is 142 there, and its slope 147.
KL_RATIO_BOUND = 5.0


class SurrogateTokens(NamedTuple):
    """What a surrogate is computed from, each [B, T]: log-probabilities, bounded log-ratios, advantages, and where to look."""

    logprobs: Tensor
    log_ratio: Tensor
    advantages: Tensor
    kept: Tensor


def bounded(log_ratio: Tensor, high: float = LOG_RATIO_BOUND) -> Tensor:
    """The log-ratio clamped to -20 to `high` nats; beyond, the gradient is 0.

    For ratios of policies: so far outside the trust region there is nothing to learn from a token.
    """
    return log_ratio.clamp(-LOG_RATIO_BOUND, high)


def bounded_with_slope(log_ratio: Tensor, high: float) -> Tensor:
    """The log-ratio clamped to -20 to `high` nats; beyond, the gradient is the one at the bound.

    For divergences from the reference: a policy that has strayed too far must still be pulled back, only not harder.
    An infinite log-ratio gets the bound and no gradient.
    """
    held = log_ratio.detach()
    # The difference is exactly 0 and carries the gradient.
    return held.clamp(-LOG_RATIO_BOUND, high) + (log_ratio - held).nan_to_num(0.0)
