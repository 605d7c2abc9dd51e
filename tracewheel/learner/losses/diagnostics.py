"""What a policy loss says about itself beside its value."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tracewheel.learner.losses.kl import k3


@dataclass(frozen=True)
class Diagnostics:
    """Sums over action tokens, so that micro-batches add up; the properties are means."""

    tokens: int = 0
    clipped: float = 0.0
    ratio_total: float = 0.0
    ratio_max: float = 0.0
    behaviour_kl_total: float = 0.0
    weight_total: float = 0.0

    def __add__(self, other: Diagnostics) -> Diagnostics:
        return Diagnostics(
            self.tokens + other.tokens,
            self.clipped + other.clipped,
            self.ratio_total + other.ratio_total,
            max(self.ratio_max, other.ratio_max),
            self.behaviour_kl_total + other.behaviour_kl_total,
            self.weight_total + other.weight_total,
        )

    @property
    def clip_share(self) -> float:
        """Share of action tokens whose gradient the clip cut off (or, for CISPO, whose weight it capped)."""
        return self.clipped / max(self.tokens, 1)

    @property
    def ratio_mean(self) -> float:
        """Mean ratio of the policy to the one the loss is clipped around, per token."""
        return self.ratio_total / max(self.tokens, 1)

    @property
    def behaviour_kl(self) -> float:
        """K3 estimate of KL(behaviour policy || policy), per token."""
        return self.behaviour_kl_total / max(self.tokens, 1)

    @property
    def weight_mean(self) -> float:
        """Mean correction weight, per token; 1 where there is no correction."""
        return self.weight_total / max(self.tokens, 1)


def diagnose(
    log_ratio: Tensor, behaviour_log_ratio: Tensor, clipped: Tensor, weights: Tensor | None, mask: Tensor
) -> Diagnostics:
    """The diagnostics of one micro-batch, out of tensors [B, T]."""
    kept = mask.bool()
    tokens = int(kept.sum())
    if not tokens:
        return Diagnostics()
    ratio = log_ratio.detach()[kept].exp()
    behaviour = behaviour_log_ratio.detach()[kept]
    return Diagnostics(
        tokens=tokens,
        clipped=clipped[kept].sum().item(),
        ratio_total=ratio.sum().item(),
        ratio_max=ratio.max().item(),
        behaviour_kl_total=k3(torch.zeros_like(behaviour), behaviour).sum().item(),
        weight_total=float(tokens) if weights is None else weights[kept].sum().item(),
    )
