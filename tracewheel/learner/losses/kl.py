"""The KL penalty towards the reference policy: its estimators, its schedule and its term of the loss or the reward."""

from __future__ import annotations

import torch
from torch import Tensor

from tracewheel.config import KlConfig
from tracewheel.learner.losses.bounds import KL_RATIO_BOUND, LOG_RATIO_BOUND, bounded, bounded_with_slope


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
