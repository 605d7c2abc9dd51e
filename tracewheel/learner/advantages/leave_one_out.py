"""The leave-one-out baseline of RLOO (Kool et al. 2019; Ahmadian et al. 2024, "Back to Basics", arXiv:2402.14740)."""

from __future__ import annotations

from torch import Tensor

from tracewheel.learner.advantages.groups import Groups, group_statistics


def leave_one_out_advantages(rewards: Tensor, groups: Groups) -> Tensor:
    """Each sample's reward less the mean of its group's other scored samples, which is (r - mean) n / (n - 1).

    The baseline does not depend on the sample itself, so the gradient has no bias. A sample that is
    alone in its group, unscored ones not counted, has no baseline and gets 0.

    Args:
        rewards: [N] floating point, NaN or infinite where unscored; such samples get 0.
        groups: [N] group ids.

    Returns:
        Advantages [N] in the type of `rewards`.
    """
    statistics = group_statistics(rewards, groups)
    index = statistics.index
    count = statistics.count[index]
    advantages = (statistics.rewards - statistics.mean[index]) * count / (count - 1.0).clamp(min=1.0)
    silent = ~statistics.scored | statistics.zero_variance[index]
    return advantages.masked_fill(silent, 0.0).to(rewards.dtype)
