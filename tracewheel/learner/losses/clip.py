"""The clipped surrogate of PPO (Schulman et al. 2017, arXiv:1707.06347)."""

from __future__ import annotations

import torch
from torch import Tensor

from tracewheel.config import ClipConfig
from tracewheel.learner.losses.ratios import SurrogateTokens


def clip(config: ClipConfig, tokens: SurrogateTokens) -> tuple[Tensor, Tensor]:
    """-min(ratio x A, clamp(ratio, 1 - low, 1 + high) x A) per token [B, T], and which tokens lost their gradient.

    `high` may be above `low` (clip-higher, DAPO, Yu et al. 2025, arXiv:2503.14476). With a number for `dual` the loss of a
    token of negative advantage is at most dual x |A| (Ye et al. 2020, arXiv:1912.09729): without it, a bad
    token that has become much likelier would outweigh everything else.
    """
    log_ratio, advantages = tokens.log_ratio, tokens.advantages
    low, high = 1.0 - config.low, 1.0 + (config.low if config.high is None else config.high)
    ratio = log_ratio.exp()
    bad = advantages < 0
    loss = -torch.minimum(ratio * advantages, ratio.clamp(low, high) * advantages)
    clipped = (bad & (ratio < low)) | ((advantages > 0) & (ratio > high))
    if isinstance(config.dual, float):
        loss = torch.where(bad, torch.minimum(loss, -config.dual * advantages), loss)
        clipped = clipped | (bad & (ratio > config.dual))
    return loss, clipped.detach()
