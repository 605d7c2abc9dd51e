"""The weighted log-likelihood (Williams 1992, REINFORCE); with weight 1, imitation."""

from __future__ import annotations

import torch
from torch import Tensor


def likelihood(logprobs: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
    """-A x log p per token [B, T]; nothing is clipped."""
    return -advantages * logprobs, torch.zeros_like(advantages, dtype=torch.bool)
