"""Diagnostics of a policy loss: clipping, ratios and divergence."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tracewheel.learner.losses.bounds import bounded
from tracewheel.learner.losses.kl import k3


@dataclass(frozen=True)
class Diagnostics:
    """Sums over action tokens, so that micro-batches add up; the properties are means per token.

    `ratio_max` is the largest ratio of the policy to the one the loss is clipped around.
    """

    tokens: int = 0
    clipped: float = 0.0
    ratio_max: float = 0.0
    behaviour_kl_total: float = 0.0
    weight_total: float = 0.0

    def __add__(self, other: Diagnostics) -> Diagnostics:
        return Diagnostics(
            self.tokens + other.tokens,
            self.clipped + other.clipped,
            max(self.ratio_max, other.ratio_max),
            self.behaviour_kl_total + other.behaviour_kl_total,
            self.weight_total + other.weight_total,
        )

    @property
    def clip_share(self) -> float:
        """Share of action tokens that lost their gradient to the clip (for CISPO: whose weight is capped)."""
        return self.clipped / max(self.tokens, 1)

    @property
    def behaviour_kl(self) -> float:
        """K3 estimate of KL(behaviour policy || policy)."""
        return self.behaviour_kl_total / max(self.tokens, 1)

    @property
    def weight_mean(self) -> float:
        """Mean correction weight; 1 without a correction."""
        return self.weight_total / max(self.tokens, 1)


def diagnose(
    log_ratio: Tensor, behaviour_log_ratio: Tensor, clipped: Tensor, weights: Tensor | None, mask: Tensor
) -> Diagnostics:
    """The diagnostics of one micro-batch, from tensors [B, T]."""
    kept = mask.bool()
    tokens = int(kept.sum())
    if not tokens:
        return Diagnostics()
    ratio = bounded(log_ratio.detach()[kept]).exp()
    behaviour = behaviour_log_ratio.detach()[kept]
    return Diagnostics(
        tokens=tokens,
        clipped=clipped[kept].sum().item(),
        ratio_max=ratio.max().item(),
        behaviour_kl_total=k3(torch.zeros_like(behaviour), behaviour).sum().item(),
        weight_total=float(tokens) if weights is None else weights[kept].sum().item(),
    )
