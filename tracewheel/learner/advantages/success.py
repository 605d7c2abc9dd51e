"""Imitation of what succeeded: rejection sampling (Yuan et al. 2023, arXiv:2308.01825)."""

from __future__ import annotations

from torch import Tensor


def success_advantages(rewards: Tensor, *, threshold: float) -> Tensor:
    """1 for a reward [N] of at least `threshold`, 0 for the others and for unscored samples (NaN or infinite)."""
    return ((rewards >= threshold) & rewards.isfinite()).to(rewards.dtype)
