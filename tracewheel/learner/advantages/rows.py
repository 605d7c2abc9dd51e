"""From the advantages of rollouts to those of rows, and from raw to whitened ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def whiten(advantages: Tensor, mask: Tensor) -> Tensor:
    """Mean 0 and standard deviation 1 over the tokens where `mask` is 1; 0 elsewhere. Shapes are kept.

    The deviation is the unbiased one, + 1e-8; a single token, or tokens that are all alike, get 0.
    """
    kept = mask.bool()
    chosen = advantages[kept].double()
    if len(chosen) < 2:
        return torch.zeros_like(advantages)
    white = (chosen - chosen.mean()) / (chosen.std() + 1e-8)
    return torch.zeros_like(advantages).masked_scatter(kept, white.to(advantages.dtype))


def broadcast(advantages: Tensor, row_to_rollout: Sequence[int] | Tensor) -> Tensor:
    """The advantage of each row [N] whose rollout was split over several, out of one a rollout [R].

    Normalise over rollouts first, then broadcast: normalising over rows would count a long rollout, which
    is cut into more rows, more than once.

    Raises:
        IndexError: a row names a rollout that is not there.
    """
    index = torch.as_tensor(row_to_rollout, dtype=torch.long, device=advantages.device)
    if len(index) and (int(index.min()) < 0 or int(index.max()) >= len(advantages)):
        raise IndexError(f"rows name rollouts {int(index.min())} to {int(index.max())}, and there are {len(advantages)}")
    return advantages[index]
