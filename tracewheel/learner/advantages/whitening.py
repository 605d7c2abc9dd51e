"""Whitening of advantages over a batch's action tokens."""

from __future__ import annotations

import torch
from torch import Tensor


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
