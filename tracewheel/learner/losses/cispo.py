"""CISPO (MiniMax 2025, "MiniMax-M1", arXiv:2506.13585): it clips the weight, so every token keeps a gradient."""

from __future__ import annotations

from torch import Tensor

from tracewheel.config import CispoConfig
from tracewheel.learner.losses.ratios import SurrogateTokens


def cispo(config: CispoConfig, tokens: SurrogateTokens) -> tuple[Tensor, Tensor]:
    """-min(ratio, high) x A x log p per token [B, T], with the ratio held constant, and which ratios were capped.

    `high` bounds the ratio itself, like TRL's `epsilon_high` for this loss; it is the paper's 1 + epsilon_high.
    As in the paper there is no lower bound.
    """
    ratio = tokens.log_ratio.detach().exp()
    return -ratio.clamp(max=config.high) * tokens.advantages * tokens.logprobs, ratio > config.high
