"""Group-normalised advantages of GRPO (Shao et al. 2024, "DeepSeekMath", arXiv:2402.03300)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

EPSILON = 1e-4
SAME = 1e-8


@dataclass(frozen=True)
class _GroupStatistics:
    """Per group, over its scored samples; `index` [N] says which group each sample belongs to."""

    index: Tensor
    count: Tensor
    mean: Tensor
    std: Tensor
    zero_variance: Tensor


def group_advantages(rewards: Tensor, groups: Sequence[Hashable] | Tensor, scale: bool) -> tuple[Tensor, Tensor]:
    """How much better each sample did than its group: (r - mean) / (std + 1e-4).

    The standard deviation is the unbiased one (divisor n - 1), as in TRL's `GRPOTrainer`. Without
    `scale` the advantage is r - mean (Liu et al. 2025, "Dr. GRPO"). A NaN reward is unscored, which
    is not 0: the sample is left out of the group's mean and deviation and gets advantage 0. A group
    whose scored rewards are all the same, a single one included, says nothing about what to change:
    its advantages are exactly 0.

    Args:
        rewards: [N] floating point, NaN where unscored.
        groups: [N] group ids; the members of a group need not be neighbours.
        scale: whether to divide by the standard deviation.

    Returns:
        `advantages` [N] in the type of `rewards`, and `zero_variance` [N] bool: True for every sample
        of a group that has scored rewards and no variance among them.
    """
    statistics = _group_statistics(rewards, groups)
    index = statistics.index
    advantages = rewards.double() - statistics.mean[index]
    if scale:
        advantages = advantages / (statistics.std[index] + EPSILON)
    silent = rewards.isnan() | statistics.zero_variance[index]
    return advantages.masked_fill(silent, 0.0).to(rewards.dtype), statistics.zero_variance[index]


def zero_variance_share(rewards: Tensor, groups: Sequence[Hashable] | Tensor) -> float:
    """Share of groups without variance, among those with a scored sample; 0.0 when there is none."""
    statistics = _group_statistics(rewards, groups)
    scored = int((statistics.count > 0).sum())
    return int(statistics.zero_variance.sum()) / scored if scored else 0.0


def _group_statistics(rewards: Tensor, groups: Sequence[Hashable] | Tensor) -> _GroupStatistics:
    ids: Sequence[Hashable] = groups.tolist() if isinstance(groups, Tensor) else groups
    if rewards.ndim != 1 or len(ids) != len(rewards):
        raise ValueError(f"rewards [N] and groups [N] do not fit: {tuple(rewards.shape)} and {len(ids)}")
    numbers: dict[Hashable, int] = {}
    index = torch.tensor([numbers.setdefault(group, len(numbers)) for group in ids], dtype=torch.long, device=rewards.device)
    scored = ~rewards.isnan()
    # Double precision, so that the result does not depend on the order of a group's members.
    values = rewards.double().masked_fill(~scored, 0.0)

    def total(per_sample: Tensor) -> Tensor:
        return torch.zeros(len(numbers), dtype=torch.double, device=rewards.device).index_add_(0, index, per_sample)

    count = total(scored.double())
    mean = total(values) / count.clamp(min=1.0)
    deviation = (values - mean[index]).masked_fill(~scored, 0.0)
    std = (total(deviation.square()) / (count - 1.0).clamp(min=1.0)).sqrt()
    return _GroupStatistics(index, count, mean, std, (count > 0) & (std <= SAME))
