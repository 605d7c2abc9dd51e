"""Group-normalised advantages of GRPO (Shao et al. 2024, "DeepSeekMath", arXiv:2402.03300)."""

from __future__ import annotations

from torch import Tensor

from tracewheel.learner.advantages.groups import EPSILON, Groups, group_statistics


def group_advantages(rewards: Tensor, groups: Groups, *, scale: bool) -> Tensor:
    """How much better each sample did than its group: (r - mean) / (std + 1e-4).

    The standard deviation is the unbiased one, as in TRL's `GRPOTrainer`. Without `scale` the advantage
    is r - mean (Liu et al. 2025, "Dr. GRPO", arXiv:2503.20783). A group whose scored rewards are all the
    same, a single one included, says nothing about what to change: its advantages are exactly 0.

    Args:
        rewards: [N] floating point, NaN or infinite where unscored; such samples get 0.
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
    silent = ~statistics.scored | statistics.zero_variance[index]
    return advantages.masked_fill(silent, 0.0).to(rewards.dtype)
