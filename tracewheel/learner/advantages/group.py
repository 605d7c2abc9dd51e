"""Advantages that compare a trajectory with others of its task or batch, and the statistics of groups that they share.

`group`: GRPO (Shao et al. 2024, "DeepSeekMath", arXiv:2402.03300). `leave_one_out`: RLOO (Kool et al. 2019; Ahmadian et al.
2024, "Back to Basics", arXiv:2402.14740). `batch`, and `kl_to_go` by its equations 8 to 10: Hu 2025, "REINFORCE++",
arXiv:2501.03262. `greedy_baseline`: ReMax (Li et al. 2023, arXiv:2310.10505).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

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


def group_advantages(rewards: Tensor, groups: Groups, *, scale: bool) -> Tensor:
    """Each trajectory's reward relative to its group: (r - mean) / (std + 1e-4).

    The standard deviation is the unbiased one, as in TRL's `GRPOTrainer`. Without `scale` the advantage
    is r - mean (Liu et al. 2025, "Dr. GRPO", arXiv:2503.20783). A group without variance in its scored
    rewards, a single one included, carries no signal: its advantages are exactly 0.

    Args:
        rewards: [N] floating point, NaN or infinite where unscored; such trajectories get 0.
        groups: [N] group ids.
        scale: whether to divide by the standard deviation.

    Returns:
        Advantages [N] in the type of `rewards`.
    """
    statistics = group_statistics(rewards, groups)
    index = statistics.index
    advantages = statistics.rewards - statistics.mean[index]
    if scale:
        advantages = advantages / (statistics.std[index] + EPSILON)
    no_signal = ~statistics.scored | statistics.zero_variance[index]
    return advantages.masked_fill(no_signal, 0.0).to(rewards.dtype)


def leave_one_out_advantages(rewards: Tensor, groups: Groups) -> Tensor:
    """Each trajectory's reward less the mean of the others in its group: (r - mean) n / (n - 1).

    Unscored trajectories do not count. The baseline does not depend on the trajectory itself, so the gradient has
    no bias. A trajectory alone in its group has no baseline and gets 0.

    Args:
        rewards: [N] floating point, NaN or infinite where unscored; such trajectories get 0.
        groups: [N] group ids.

    Returns:
        Advantages [N] in the type of `rewards`.
    """
    statistics = group_statistics(rewards, groups)
    index = statistics.index
    count = statistics.count[index]
    advantages = (statistics.rewards - statistics.mean[index]) * count / (count - 1.0).clamp(min=1.0)
    no_signal = ~statistics.scored | statistics.zero_variance[index]
    return advantages.masked_fill(no_signal, 0.0).to(rewards.dtype)


def batch_advantages(rewards: Tensor, groups: Groups, *, center: Literal["group", "batch"]) -> Tensor:
    """Reward less the mean of the group or of the batch, divided by the standard deviation of the batch's rewards + 1e-4.

    The deviation is the unbiased one over all scored rewards, as in TRL's `scale_rewards="batch"` (the paper's
    variant with a group baseline subtracts the group's mean first): groups are not scaled to variance 1, so a
    group weighs as much as its rewards vary. With `center` "group" a group without variance gets exactly 0; with
    "batch" it is compared with the other groups. A batch without variance gets 0 everywhere.

    Args:
        rewards: [N] floating point, NaN or infinite where unscored; such trajectories get 0.
        groups: [N] group ids.
        center: whose mean is subtracted.

    Returns:
        Advantages [N] in the type of `rewards`.
    """
    by_group = group_statistics(rewards, groups)
    whole = group_statistics(rewards, torch.zeros(len(rewards), dtype=torch.long))
    centre = by_group if center == "group" else whole
    no_signal = ~by_group.scored | centre.zero_variance[centre.index]
    std = whole.std[whole.index]
    advantages = (by_group.rewards - centre.mean[centre.index]) / (std + EPSILON)
    return advantages.masked_fill(no_signal | (std <= SAME), 0.0).to(rewards.dtype)


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


def greedy_baseline_advantages(rewards: Tensor, baselines: Tensor) -> Tensor:
    """Each trajectory's reward less that of the greedy episode of its task; not scaled.

    The baseline does not depend on the sampled tokens, so the gradient has no bias (proposition 1 of the paper).

    Args:
        rewards: [N] floating point, NaN or infinite where unscored.
        baselines: [N], the reward of the greedy episode of each trajectory's task; NaN where it is unscored.

    Returns:
        Advantages [N] in the type of `rewards`; 0 where either is unscored.
    """
    known = rewards.isfinite() & baselines.isfinite()
    return (rewards.double() - baselines.double()).masked_fill(~known, 0.0).to(rewards.dtype)
