"""CISPO (MiniMax 2025, "MiniMax-M1", arXiv:2506.13585): the weight is clipped, the gradient of no token is cut off."""

from __future__ import annotations

from torch import Tensor

from tracewheel.config import CispoConfig


def cispo(config: CispoConfig, logprobs: Tensor, log_ratio: Tensor, advantages: Tensor) -> tuple[Tensor, Tensor]:
    """-min(ratio, high) x A x log p per token [B, T], the ratio held constant; and which ratios were capped.

    `high` bounds the ratio itself, as TRL's `epsilon_high` does for this loss; the paper's 1 + epsilon_high.
    There is no lower bound, as in the paper.
    """
    ratio = log_ratio.detach().exp()
    return -ratio.clamp(max=config.high) * advantages * logprobs, ratio > config.high
