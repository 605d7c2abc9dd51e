"""Estimators of the Kullback-Leibler divergence from samples (Schulman 2020,
"Approximating KL Divergence", http://joschu.net/blog/kl-approx.html).

Each takes log-probabilities of tokens that were sampled from the policy p, under p and under a
reference q, and estimates KL(p || q) token by token. Shapes are kept; masking is the caller's.
"""

from __future__ import annotations

import torch
from torch import Tensor


def k1(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """Log p - log q: unbiased, of high variance, and negative on some tokens."""
    return logprobs - reference_logprobs


def k2(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """(log p - log q)^2 / 2: biased, of low variance, never negative."""
    return 0.5 * (logprobs - reference_logprobs).square()


def k3(logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """q/p - 1 - log(q/p): unbiased, of low variance, never negative. The one GRPO uses."""
    log_ratio = reference_logprobs - logprobs
    return torch.exp(log_ratio) - log_ratio - 1.0
