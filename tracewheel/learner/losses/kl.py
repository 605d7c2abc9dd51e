"""Estimators of the Kullback-Leibler divergence from samples (Schulman 2020,
"Approximating KL Divergence", http://joschu.net/blog/kl-approx.html), and the plan of its weight.

Each estimator takes log-probabilities of tokens that were sampled from the policy p, under p and under
a reference q, and estimates a divergence token by token. Shapes are kept; masking is the caller's.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tracewheel.config import KlConfig

Direction = Literal["reverse", "forward"]

LARGEST_ERROR = 0.2


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

    The first term is the divergence by importance sampling; the second, whose mean is 0, takes off variance.
    """
    log_ratio = reference_logprobs - logprobs
    ratio = torch.exp(log_ratio)
    return ratio * log_ratio - (ratio - 1.0)


def direction_at(config: KlConfig, iteration: int, iterations: int) -> Direction:
    """The direction of the divergence in an iteration, of `iterations` counted from 1.

    `config.late_direction` holds once the share `config.late_from` of the iterations is done.
    """
    if config.late_direction is not None and iteration - 1 >= config.late_from * iterations:
        return config.late_direction
    return config.direction


def adapted_weight(config: KlConfig, weight: float, observed_kl: float) -> float:
    """The KL weight of the next iteration (Ziegler et al. 2019, arXiv:1909.08593, section 2.2).

    The relative error of the observed divergence from `config.target`, at most 0.2 either way, moves the
    weight by its share of 1 / `config.horizon`: at the limit it takes about 3.5 horizons to double.
    Without a target, and for a divergence that is not finite, the weight stays.
    """
    if config.target is None or not -float("inf") < observed_kl < float("inf"):
        return weight
    error = max(-LARGEST_ERROR, min(LARGEST_ERROR, observed_kl / config.target - 1.0))
    return weight * (1.0 + error / config.horizon)
