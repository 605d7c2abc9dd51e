"""Advantages scaled by the whole batch (Hu 2025, "REINFORCE++", arXiv:2501.03262)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from tracewheel.learner.advantages.group_statistics import EPSILON, SAME, Groups, group_statistics


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
