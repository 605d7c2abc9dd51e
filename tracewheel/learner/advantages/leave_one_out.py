"""The leave-one-out baseline of RLOO (Kool et al. 2019; Ahmadian et al. 2024, "Back to Basics", arXiv:2402.14740)."""

from __future__ import annotations

from torch import Tensor

from tracewheel.learner.advantages.group_statistics import Groups, group_statistics


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
