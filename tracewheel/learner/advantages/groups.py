"""Statistics of groups of samples of the same task, and what a group without variance says.

A reward that is NaN or infinite is unscored, which is not 0: its sample is left out of every mean and
deviation. All is computed in double precision, so that it does not depend on the order of the samples.
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
    """Per group, over its scored samples; `index` [N] says which group each sample belongs to.

    `rewards` [N] are those given, 0 where `scored` [N] is False. `std` is the unbiased one (divisor
    n - 1), as in TRL; `zero_variance` holds for groups with scored samples and no variance among them.
    """

    rewards: Tensor
    scored: Tensor
    index: Tensor
    count: Tensor
    mean: Tensor
    std: Tensor
    zero_variance: Tensor


def group_statistics(rewards: Tensor, groups: Groups) -> GroupStatistics:
    """The statistics of `rewards` [N] by `groups` [N]; the members of a group need not be neighbours.

    Raises:
        ValueError: the two do not have one length.
    """
    ids: Sequence[Hashable] = groups.tolist() if isinstance(groups, Tensor) else groups
    if rewards.ndim != 1 or len(ids) != len(rewards):
        raise ValueError(f"rewards [N] and groups [N] do not fit: {tuple(rewards.shape)} and {len(ids)}")
    numbers: dict[Hashable, int] = {}
    index = torch.tensor([numbers.setdefault(group, len(numbers)) for group in ids], dtype=torch.long, device=rewards.device)
    scored = rewards.isfinite()
    values = rewards.double().masked_fill(~scored, 0.0)

    def total(per_sample: Tensor) -> Tensor:
        return torch.zeros(len(numbers), dtype=torch.double, device=rewards.device).index_add_(0, index, per_sample)

    count = total(scored.double())
    mean = total(values) / count.clamp(min=1.0)
    deviation = (values - mean[index]).masked_fill(~scored, 0.0)
    std = (total(deviation.square()) / (count - 1.0).clamp(min=1.0)).sqrt()
    return GroupStatistics(values, scored, index, count, mean, std, (count > 0) & (std <= SAME))


def zero_variance(rewards: Tensor, groups: Groups) -> Tensor:
    """[N] bool: True for every sample of a group whose scored rewards are all the same, a single one included."""
    statistics = group_statistics(rewards, groups)
    return statistics.zero_variance[statistics.index]


def zero_variance_share(rewards: Tensor, groups: Groups) -> float:
    """Share of groups without variance, among those with a scored sample; 0.0 when there is none."""
    statistics = group_statistics(rewards, groups)
    scored = int((statistics.count > 0).sum())
    return int(statistics.zero_variance.sum()) / scored if scored else 0.0


def clamped(rewards: Tensor, groups: Groups, limit: float) -> Tensor:
    """Advantages [N] for the samples of groups without variance: reward less the batch's mean, within plus and minus `limit`.

    Such a group says nothing by itself, but beside the batch it says that its task went well or badly. The
    samples of other groups and unscored ones get 0: add this to their own advantages.
    """
    statistics = group_statistics(rewards, groups)
    mean = statistics.rewards.sum() / statistics.scored.sum().clamp(min=1)
    silent = statistics.zero_variance[statistics.index] & statistics.scored
    return (statistics.rewards - mean).clamp(-limit, limit).masked_fill(~silent, 0.0).to(rewards.dtype)
