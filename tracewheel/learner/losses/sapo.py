"""SAPO (Gao et al. 2025, "Soft Adaptive Policy Optimization", arXiv:2511.20347): a soft gate instead of the clip."""

from __future__ import annotations

import torch
from torch import Tensor

from tracewheel.config import SapoConfig
from tracewheel.learner.losses.ratios import SurrogateTokens

POSITIVE, NEGATIVE = 1.0, 1.05  # temperatures


def sapo(config: SapoConfig, tokens: SurrogateTokens) -> tuple[Tensor, Tensor]:
    """-sigmoid(tau (ratio - 1)) x 4 / tau x A per token [B, T]; nothing is clipped.

    At ratio 1 the gradient is the plain policy gradient; away from it the gradient fades, faster for larger tau.
    Tokens of positive advantage have one temperature, the others another; the values are the paper's.
    """
    log_ratio, advantages = tokens.log_ratio, tokens.advantages
    temperature = torch.full_like(log_ratio, NEGATIVE).masked_fill(advantages > 0, POSITIVE)
    gate = torch.sigmoid(temperature * (log_ratio.exp() - 1.0)) * 4.0 / temperature
    return -gate * advantages, torch.zeros_like(advantages, dtype=torch.bool)
