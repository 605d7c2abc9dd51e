"""Statistics of groups of trajectories of one task, and groups without variance.

A NaN or infinite reward means unscored, which is not 0: it is left out of every mean and deviation. Sums are in
double precision, so that results do not depend on the order of the trajectories.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Groups = Sequence[Hashable] | Tensor

EPSILON = 1e-4
SAME = 1e-8


@dataclass(frozen=True)
class GroupStatistics:
    """Statistics per group, over scored trajectories; `index` [N] is the group of each trajectory.

    `rewards` [N] are 0 where `scored` [N] is False. `std` is the unbiased one (divisor n - 1), as in TRL;
    `zero_variance` is true for groups with scored trajectories and no variance among them.
    """

    rewards: Tensor
    scored: Tensor
    index: Tensor
    count: Tensor
    mean: Tensor
    std: Tensor
    zero_variance: Tensor


def group_statistics(rewards: Tensor, groups: Groups) -> GroupStatistics:
    """The statistics of `rewards` [N] by `groups` [N], in any order.

    Raises:
        ValueError: the lengths differ.
    """
    ids: Sequence[Hashable] = groups.tolist() if isinstance(groups, Tensor) else groups
    if rewards.ndim != 1 or len(ids) != len(rewards):
        raise ValueError(f"rewards [N] and groups [N] do not fit: {tuple(rewards.shape)} and {len(ids)}")
    numbers: dict[Hashable, int] = {}
    index = torch.tensor([numbers.setdefault(group, len(numbers)) for group in ids], dtype=torch.long, device=rewards.device)
    scored = rewards.isfinite()
    values = rewards.double().masked_fill(~scored, 0.0)

    def total(per_trajectory: Tensor) -> Tensor:
        return torch.zeros(len(numbers), dtype=torch.double, device=rewards.device).index_add_(0, index, per_trajectory)

    count = total(scored.double())
    mean = total(values) / count.clamp(min=1.0)
    deviation = (values - mean[index]).masked_fill(~scored, 0.0)
    std = (total(deviation.square()) / (count - 1.0).clamp(min=1.0)).sqrt()
    return GroupStatistics(values, scored, index, count, mean, std, (count > 0) & (std <= SAME))


def zero_variance(rewards: Tensor, groups: Groups) -> Tensor:
    """[N] bool: True for trajectories of a group whose scored rewards are all equal, a single one included."""
    statistics = group_statistics(rewards, groups)
    return statistics.zero_variance[statistics.index]


def zero_variance_share(rewards: Tensor, groups: Groups) -> float:
    """Share of groups without variance, among those with a scored trajectory; 0.0 when there is none."""
    statistics = group_statistics(rewards, groups)
    scored = int((statistics.count > 0).sum())
    return int(statistics.zero_variance.sum()) / scored if scored else 0.0


def clamped(rewards: Tensor, groups: Groups, limit: float) -> Tensor:
    """Advantages [N] for groups without variance: reward less the batch's mean, clamped to +-`limit`.

    Compared with the batch, such a group still shows whether its task went well or badly. Trajectories of other
    groups and unscored ones get 0.
    """
    statistics = group_statistics(rewards, groups)
    mean = statistics.rewards.sum() / statistics.scored.sum().clamp(min=1)
    no_signal = statistics.zero_variance[statistics.index] & statistics.scored
    return (statistics.rewards - mean).clamp(-limit, limit).masked_fill(~no_signal, 0.0).to(rewards.dtype)


def at_the_baseline(rewards: Tensor, baselines: Tensor, groups: Groups) -> Tensor:
    """[N] bool: True for trajectories of a group that is all at its baseline, or has none: it carries no signal."""
    gaps = (rewards.double() - baselines.double()).abs()
    far = (gaps.isfinite() & (gaps > SAME)).double()
    statistics = group_statistics(far, groups)
    return (statistics.mean == 0)[statistics.index]


def whiten(advantages: Tensor, mask: Tensor) -> Tensor:
    """Mean 0 and standard deviation 1 over the tokens where `mask` is 1; 0 elsewhere. Shapes are kept.

    The deviation is the unbiased one, + 1e-8. A single token, or tokens with one value, get 0.
    """
    kept = mask.bool()
    chosen = advantages[kept].double()
    if len(chosen) < 2:
        return torch.zeros_like(advantages)
    white = (chosen - chosen.mean()) / (chosen.std() + 1e-8)
    return torch.zeros_like(advantages).masked_scatter(kept, white.to(advantages.dtype))
