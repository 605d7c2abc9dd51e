"""The weighted log-likelihood (Williams 1992, REINFORCE); with weight 1, imitation."""

from __future__ import annotations

import torch
from torch import Tensor

from tracewheel.config import LikelihoodConfig
from tracewheel.learner.losses.ratios import SurrogateTokens


def likelihood(_: LikelihoodConfig, tokens: SurrogateTokens) -> tuple[Tensor, Tensor]:
    """-A x log p per token [B, T]; nothing is clipped."""
    return -tokens.advantages * tokens.logprobs, torch.zeros_like(tokens.advantages, dtype=torch.bool)
