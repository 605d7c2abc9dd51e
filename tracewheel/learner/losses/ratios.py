"""Log-ratios of two policies: their bounds, importance weights, and the KL penalty towards the reference policy.

The bounds keep a token from making a loss or a gradient overflow: float32 overflows at e^88.7, and an overflowed ratio times a
gradient of 0 is NaN. A bound of 20 nats (a ratio of 5e8; also verl's) is far outside every clip range, so it changes no
token that has anything to say.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from tracewheel.config import KlConfig, OffPolicyConfig

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


# A weight this close to 1 differs by rounding alone.
ROUNDING = 1e-4


def correction_weights(config: OffPolicyConfig, proximal: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
    """The weight of each action token's loss: the proximal policy's probability over the behaviour policy's.

    Decoupled PPO (Hilton et al. 2022, arXiv:2110.00641) clips around the proximal policy and corrects for the
    behaviour policy by this weight. `truncate` caps it at `config.cap` (Yao et al. 2025, truncated importance
    sampling); `mask` makes it 0 outside 1/cap to cap. At level `sequence` each action token gets the product over the
    sequence's ratios: exact, but far from 1 for long trajectories. At level `geometric` it gets their geometric mean, which
    does not depend on the length and finds sequences that are off as a whole.

    Args:
        config: correction, level and cap.
        proximal: [B, T], log-probabilities of the policy at the start of the update.
        behaviour: [B, T], those of the policy that sampled the tokens.
        mask: [B, T], 1 where the policy sampled the token.

    Returns:
        [B, T] without gradients: 1 on every action token with correction "none", 0 where `mask` is 0.
    """
    kept = mask.bool()
    log_ratio = bounded((proximal - behaviour).detach().masked_fill(~kept, 0.0))
    if config.level != "token":
        total = log_ratio.sum(-1, keepdim=True)
        mean = total / kept.sum(-1, keepdim=True).clamp(min=1)
        log_ratio = bounded(total if config.level == "sequence" else mean).expand_as(log_ratio)
    bound = math.log(config.cap)
    if config.correction == "none":
        weights = torch.ones_like(log_ratio)
    elif config.correction == "truncate":
        weights = log_ratio.clamp(max=bound).exp()
    else:
        weights = log_ratio.exp().masked_fill(log_ratio.abs() > bound, 0.0)
    return weights.masked_fill(~kept, 0.0)


def correction_shares(config: OffPolicyConfig, weights: Tensor, mask: Tensor) -> tuple[int, int]:
    """How many action tokens have a weight other than 1, and how many a weight that was capped or set to 0.

    Args:
        config: That of the weights.
        weights: [B, T], from `correction_weights`.
        mask: [B, T], 1 where the policy sampled the token.
    """
    kept = mask.bool()
    if config.correction == "none":
        return 0, 0
    cut = weights >= config.cap * (1.0 - ROUNDING) if config.correction == "truncate" else weights == 0.0
    return int(((weights - 1.0).abs() > ROUNDING)[kept].sum()), int(cut[kept].sum())


def k1(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Log p - log q: estimates KL(p || q) without bias, of high variance, and negative on some tokens."""
    return _policy_over_reference(logprobs, reference_logprobs)


def k2(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """(log p - log q)^2 / 2: estimates KL(p || q) with a bias, of low variance, never negative."""
    return 0.5 * _policy_over_reference(logprobs, reference_logprobs).square()


def k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """q/p - 1 - log(q/p): estimates KL(p || q) without bias, of low variance, never negative. The one GRPO uses."""
    log_ratio = bounded_with_slope(reference_logprobs - logprobs, KL_RATIO_BOUND)
    return torch.exp(log_ratio) - log_ratio - 1.0


def _policy_over_reference(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    return bounded_with_slope(logprobs - reference_logprobs, LOG_RATIO_BOUND)


MAX_ERROR = 0.2
HORIZON = 10  # a larger one adapts the weight more slowly


def adapted_weight(config: KlConfig, weight: float, observed_kl: float) -> float:
    """The KL weight of the next iteration (Ziegler et al. 2019, arXiv:1909.08593, section 2.2).

    The relative error of the observed divergence from `config.target`, clipped to +-0.2, changes the weight by
    error / `HORIZON`: at the limit it doubles in about 3.5 horizons. Without a target, or with a
    divergence that is not finite, the weight stays.
    """
    if config.target is None or not -float("inf") < observed_kl < float("inf"):
        return weight
    error = max(-MAX_ERROR, min(MAX_ERROR, observed_kl / config.target - 1.0))
    return weight * (1.0 + error / HORIZON)


def kl_term(config: KlConfig, logprobs: Tensor, reference: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
    """The divergence KL(policy || reference) of each action token [B, T], unweighted; 0 where `mask` is 0.

    An unbiased estimator need not have an unbiased gradient. With `config.corrected` each term is multiplied by
    the ratio of the policy to the behaviour policy, so that the mean over the sampled tokens has the gradient of
    the true divergence: for k1 and k3 (DeepSeek-V3.2, arXiv:2512.02556; the default in TRL)
    the ratio carries a gradient; k2 has the right gradient by itself, and its ratio is held constant
    (Liu et al. 2025, "Rethinking KL Regularization in RLHF", arXiv:2510.01555). Without it, k3 is the plain
    term of the GRPO paper, and k1 has a gradient with mean 0, which regularises nothing. The ratio is at most e^5 = 148, as
    that in k3, so that one token cannot be the whole loss.

    Args:
        config: estimator and correction; the caller applies weight and place.
        logprobs: [B, T] of the policy, with gradients.
        reference: [B, T] of the reference policy.
        behaviour: [B, T] of the policy that sampled the tokens.
        mask: [B, T], 1 where the policy sampled the token.
    """
    masked = ~mask.bool()
    logprobs, reference, behaviour = (
        each.masked_fill(masked, 0.0) for each in (logprobs, reference.detach(), behaviour.detach())
    )
    divergence = {"k1": k1, "k2": k2, "k3": k3}[config.estimator](logprobs, reference)
    if config.corrected:
        ratio = bounded(logprobs - behaviour, KL_RATIO_BOUND).exp()
        divergence = divergence * (ratio.detach() if config.estimator == "k2" else ratio)
    return divergence.masked_fill(masked, 0.0)
