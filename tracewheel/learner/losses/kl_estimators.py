"""Estimators of the Kullback-Leibler divergence from samples (Schulman 2020,
"Approximating KL Divergence", http://joschu.net/blog/kl-approx.html).

Each estimator takes log-probabilities of tokens sampled from the policy p, under p and under a reference q,
and estimates the divergence of each token. Shapes are kept; the caller masks.
"""

from __future__ import annotations

import torch
from torch import Tensor


def k1(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Log p - log q: estimates KL(p || q) without bias, of high variance, and negative on some tokens."""
    return logprobs - reference_logprobs


def k2(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """(log p - log q)^2 / 2: estimates KL(p || q) with a bias, of low variance, never negative."""
    return 0.5 * (logprobs - reference_logprobs).square()


def k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """q/p - 1 - log(q/p): estimates KL(p || q) without bias, of low variance, never negative. The one GRPO uses."""
    log_ratio = reference_logprobs - logprobs
    return torch.exp(log_ratio) - log_ratio - 1.0


def forward_kl(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """q/p log(q/p) - (q/p - 1): estimates KL(q || p) without bias, never negative.

    The first term is the divergence by importance sampling; the second has mean 0 and reduces the variance.
    """
    log_ratio = reference_logprobs - logprobs
    ratio = torch.exp(log_ratio)
    return ratio * log_ratio - (ratio - 1.0)
