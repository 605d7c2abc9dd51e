"""Estimators of the Kullback-Leibler divergence from samples (Schulman 2020,
"Approximating KL Divergence", http://joschu.net/blog/kl-approx.html).

Each estimator takes log-probabilities of tokens sampled from the policy p, under p and under a reference q,
and estimates the divergence of each token. Shapes are kept; the caller masks. Log-ratios are bounded (see `bounds`):
no value and no gradient is infinite, and beyond the bound a token keeps the gradient that it has there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tracewheel.learner.losses.bounds import KL_RATIO_BOUND, LOG_RATIO_BOUND, bounded_with_slope


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


def forward_kl(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """q/p log(q/p) - (q/p - 1): estimates KL(q || p) without bias, never negative.

    The first term is the divergence by importance sampling; the second has mean 0 and reduces the variance.
    """
    log_ratio = bounded_with_slope(reference_logprobs - logprobs, KL_RATIO_BOUND)
    ratio = torch.exp(log_ratio)
    return ratio * log_ratio - (ratio - 1.0)


def _policy_over_reference(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    return bounded_with_slope(logprobs - reference_logprobs, LOG_RATIO_BOUND)
