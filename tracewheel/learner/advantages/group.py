"""Group-normalised advantages of GRPO (Shao et al. 2024, "DeepSeekMath", arXiv:2402.03300)."""

from __future__ import annotations

from torch import Tensor

from tracewheel.learner.advantages.group_statistics import EPSILON, Groups, group_statistics


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
