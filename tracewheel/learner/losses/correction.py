"""Importance weights for tokens that another policy sampled, truncated or masked."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tracewheel.config import OffPolicyConfig
from tracewheel.learner.losses.bounds import bounded

# A weight this close to 1 differs by rounding alone.
ROUNDING = 1e-4


def correction_weights(config: OffPolicyConfig, proximal: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
    """The weight of each action token's loss: the proximal policy's probability over the behaviour policy's.

    Decoupled PPO (Hilton et al. 2022, arXiv:2110.00641) clips around the proximal policy and corrects for the
    behaviour policy by this weight. `truncate` caps it at `config.cap` (Yao et al. 2025, truncated importance
    sampling); `mask` makes it 0 outside 1/cap to cap. At level `sequence` each action token gets the product over the
    sequence's ratios: exact, but far from 1 for long trajectories. At level `geometric` it gets their geometric mean, which
    does not depend on the length and finds sequences that are off as a whole.

    Args:
        config: correction, level and cap.
        proximal: [B, T], log-probabilities of the policy at the start of the update.
        behaviour: [B, T], those of the policy that sampled the tokens.
        mask: [B, T], 1 where the policy sampled the token.

    Returns:
        [B, T] without gradients: 1 on every action token with correction "none", 0 where `mask` is 0.
    """
    kept = mask.bool()
    log_ratio = bounded((proximal - behaviour).detach().masked_fill(~kept, 0.0))
    if config.level != "token":
        total = log_ratio.sum(-1, keepdim=True)
        mean = total / kept.sum(-1, keepdim=True).clamp(min=1)
        log_ratio = bounded(total if config.level == "sequence" else mean).expand_as(log_ratio)
    bound = math.log(config.cap)
    if config.correction == "none":
        weights = torch.ones_like(log_ratio)
    elif config.correction == "truncate":
        weights = log_ratio.clamp(max=bound).exp()
    else:
        weights = log_ratio.exp().masked_fill(log_ratio.abs() > bound, 0.0)
    return weights.masked_fill(~kept, 0.0)


def correction_shares(config: OffPolicyConfig, weights: Tensor, mask: Tensor) -> tuple[int, int]:
    """How many action tokens have a weight other than 1, and how many a weight that was capped or set to 0.

    Args:
        config: That of the weights.
        weights: [B, T], from `correction_weights`.
        mask: [B, T], 1 where the policy sampled the token.
    """
    kept = mask.bool()
    if config.correction == "none":
        return 0, 0
    cut = weights >= config.cap * (1.0 - ROUNDING) if config.correction == "truncate" else weights == 0.0
    return int(((weights - 1.0).abs() > ROUNDING)[kept].sum()), int(cut[kept].sum())
