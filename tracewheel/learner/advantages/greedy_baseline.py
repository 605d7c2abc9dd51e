"""The greedy baseline of ReMax (Li et al. 2023, arXiv:2310.10505)."""

from __future__ import annotations

from torch import Tensor


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
