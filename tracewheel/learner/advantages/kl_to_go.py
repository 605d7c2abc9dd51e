"""Advantages of tokens with the KL penalty to go (Hu 2025, "REINFORCE++", arXiv:2501.03262, equations 8 to 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from tracewheel.learner.advantages.group_statistics import Groups, group_statistics, whiten


def kl_to_go_advantages(
    rewards: Tensor, penalties: Sequence[Tensor], masks: Sequence[Tensor], groups: Groups, *, center: Literal["group", "batch"]
) -> list[Tensor]:
    """The reward of the trajectory less the KL penalty from this token on, whitened over all tokens of the batch.

    A_t = r - beta sum_(i >= t) KL_i over the trajectory's action tokens i, then (A - mean) / std over the action tokens of
    all trajectories. A token answers for the divergence that follows it, not for that before it. With `center` "group" the
    group's mean reward is subtracted from r first (the paper's variant with a baseline); with "batch" the mean of the
    whitening is the only baseline.

    Args:
        rewards: [N] floating point, NaN or infinite where unscored; such trajectories get 0 and count for nothing.
        penalties: For each trajectory beta x KL of its tokens [T]; not read off the mask.
        masks: For each trajectory [T]: 1 where the policy sampled the token.
        groups: [N] group ids.
        center: Whose mean reward is subtracted.

    Returns:
        For each trajectory the advantages of its tokens [T] in double precision, 0 off the mask.
    """
    statistics = group_statistics(rewards, groups)
    baseline = statistics.mean[statistics.index] if center == "group" else torch.zeros_like(statistics.rewards)
    returns, counted = [], []
    columns = zip((statistics.rewards - baseline).tolist(), statistics.scored.tolist(), penalties, masks, strict=True)
    for reward, scored, penalty, mask in columns:
        kept = mask.bool()
        to_go = penalty.double().masked_fill(~kept, 0.0).flip(0).cumsum(0).flip(0)
        returns.append(reward - to_go)
        counted.append(kept & scored)
    if not returns:
        return []
    return list(whiten(torch.cat(returns), torch.cat(counted)).split([len(mask) for mask in masks]))
