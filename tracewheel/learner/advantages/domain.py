"""Advantages on one scale across domains, for training on several environments at once.

The idea is the task advantage normalisation of Zhang et al. 2025, "AgentRL", arXiv:2510.04206.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from torch import Tensor

from tracewheel.learner.advantages.group import EPSILON, Groups, group_statistics

MOST_WEIGHT = 4.0  # of an advantage: a domain with one group left would otherwise decide the step


def domain_advantages(rewards: Tensor, groups: Groups, domains: Sequence[Hashable], sizes: Tensor | None = None) -> Tensor:
    """Reward less the mean of its group, divided by the deviation of its domain + 1e-4.

    The deviation is pooled within groups: sqrt(sum (r - group mean)^2 / (n - G)) over the n rewards of the domain's G groups
    that have variance. So every domain has deviation 1, whatever the scale and spread of its rewards, and within a domain a
    group weighs as much as its rewards vary.

    Why not another scale: the group's baseline (`group`, `leave_one_out`) takes the level of a domain out of its rewards but
    not their spread, and an environment whose rewards differ by 1 has ten times the gradient of one where they differ by
    0.1. The group's deviation takes that out too, but also makes a group with one success in sixteen as heavy as an even one
    (Liu et al. 2025, "Dr. GRPO", arXiv:2503.20783). One deviation for the whole batch (`batch`) is that of the loudest domain.
    The paper normalises over all tokens of a task, groups without variance included. Here a trajectory counts once, so that
    long episodes do not set the scale, and groups without variance do not count: the last groups with a signal of a nearly
    mastered domain are not blown up.

    Args:
        rewards: [N] floating point, NaN or infinite where unscored; such trajectories get 0.
        groups: [N] group ids.
        domains: [N] domain ids; a group is of one domain.
        sizes: [N] what each trajectory weighs in the loss, as its number of tokens. With them each domain gets the same
            weight: its advantages are multiplied by (sum of all sizes) / (number of domains x its own sum), 4 at most; only
            trajectories with a signal count.

    Returns:
        Advantages [N] in the type of `rewards`; exactly 0 in groups without variance.

    Raises:
        ValueError: the lengths differ.
    """
    if len(domains) != len(rewards):
        raise ValueError(f"{len(rewards)} rewards and {len(domains)} domains")
    by_group = group_statistics(rewards, groups)
    centred = by_group.rewards - by_group.mean[by_group.index]
    signal = by_group.scored & ~by_group.zero_variance[by_group.index]
    advantages = torch.zeros_like(centred)
    names = list(dict.fromkeys(domain for domain, counts in zip(domains, signal.tolist(), strict=True) if counts))
    for name in names:
        own = signal & torch.tensor([domain == name for domain in domains], device=signal.device)
        freedom = int(own.sum()) - len(by_group.index[own].unique())
        deviation = (centred[own].square().sum() / freedom).sqrt()
        weight = 1.0
        if sizes is not None:
            weight = float(sizes[signal].sum() / (len(names) * sizes[own].sum()))
        advantages[own] = min(MOST_WEIGHT, weight) * centred[own] / (deviation + EPSILON)
    return advantages.to(rewards.dtype)
