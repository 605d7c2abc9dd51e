"""Policy losses: the clipped surrogate (PPO, Schulman et al. 2017) and GRPO built on it.

Shapes: B sequences, T tokens. A loss has three parts that vary apart from each other: a per-token
term [B, T], a mask of the tokens that count, and an `Aggregation` that makes one number of them. The
aggregations divide by totals of the whole optimiser step (`StepTotals`), so the losses of its
micro-batches add up to the loss of the step, however it was cut: call `backward` on each, then step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tracewheel.kl import k3

Aggregation = Literal["token", "sequence"]


@dataclass(frozen=True)
class StepTotals:
    """What one optimiser step holds, all its micro-batches together."""

    tokens: int
    sequences: int


@dataclass(frozen=True)
class Diagnostics:
    """Sums over action tokens, so that micro-batches add up; the properties are means."""

    tokens: int = 0
    clipped: float = 0.0
    ratio_total: float = 0.0
    ratio_max: float = 0.0
    behaviour_kl_total: float = 0.0

    def __add__(self, other: Diagnostics) -> Diagnostics:
        return Diagnostics(
            self.tokens + other.tokens,
            self.clipped + other.clipped,
            self.ratio_total + other.ratio_total,
            max(self.ratio_max, other.ratio_max),
            self.behaviour_kl_total + other.behaviour_kl_total,
        )

    @property
    def clip_share(self) -> float:
        """Share of action tokens whose gradient the clip cut off."""
        return self.clipped / max(self.tokens, 1)

    @property
    def ratio_mean(self) -> float:
        return self.ratio_total / max(self.tokens, 1)

    @property
    def behaviour_kl(self) -> float:
        """K3 estimate of KL(behaviour policy || policy), per token."""
        return self.behaviour_kl_total / max(self.tokens, 1)


@dataclass(frozen=True)
class GrpoLoss:
    """`loss` to step on, with its parts aggregated alike and detached: the surrogate and the plain KL.

    `kl` is None when there was no reference policy to compare with.
    """

    loss: Tensor
    policy: Tensor
    kl: Tensor | None
    diagnostics: Diagnostics


def aggregate(values: Tensor, mask: Tensor, kind: Aggregation, totals: StepTotals) -> Tensor:
    """One number from per-token `values` [B, T], over the tokens where `mask` [B, T] is 1.

    `token`: the sum over the step's action tokens, divided by their number; every token weighs the
    same (DAPO, Yu et al. 2025). `sequence`: the mean over each sequence's tokens, then the mean over
    the step's sequences; every sequence weighs the same (GRPO, Shao et al. 2024).
    """
    kept = mask.bool()
    return _AGGREGATIONS[kind](values.masked_fill(~kept, 0.0), kept, totals)


def _by_token(values: Tensor, mask: Tensor, totals: StepTotals) -> Tensor:
    return values.sum() / max(totals.tokens, 1)


def _by_sequence(values: Tensor, mask: Tensor, totals: StepTotals) -> Tensor:
    return (values.sum(-1) / mask.sum(-1).clamp(min=1)).sum() / max(totals.sequences, 1)


_AGGREGATIONS: dict[Aggregation, Callable[[Tensor, Tensor, StepTotals], Tensor]] = {
    "token": _by_token,
    "sequence": _by_sequence,
}


def clipped_surrogate(log_ratio: Tensor, advantages: Tensor, clip: float, clip_high: float) -> Tensor:
    """PPO's per-token loss [B, T]: -min(ratio x A, clamp(ratio, 1 - clip, 1 + clip_high) x A)."""
    ratio = log_ratio.exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1.0 - clip, 1.0 + clip_high) * advantages)


def policy_loss(
    logprobs: Tensor,
    behaviour_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    totals: StepTotals,
    *,
    clip: float,
    clip_high: float | None = None,
    aggregation: Aggregation = "token",
) -> tuple[Tensor, Diagnostics]:
    """The clipped surrogate over action tokens, of one micro-batch of a step.

    Values where `mask` is 0 (prompt, observations, padding) may be anything, NaN included: they
    reach neither the loss nor, by exactly zero gradients, the policy.

    Args:
        logprobs: [B, T] of the policy, with gradients.
        behaviour_logprobs: [B, T] of the policy that sampled the tokens.
        advantages: [B], or [B, T] when each token has its own.
        mask: [B, T], 1 where the policy sampled the token.
        totals: of the whole optimiser step.
        clip: how far the ratio may fall below 1 (and rise above, without `clip_high`).
        clip_high: how far the ratio may rise above 1 (DAPO's "clip higher").
        aggregation: see `aggregate`.

    Returns:
        The scalar loss, and the diagnostics of this micro-batch.
    """
    clip_high = clip if clip_high is None else clip_high
    kept = mask.bool()
    if advantages.ndim == 1:
        advantages = advantages.unsqueeze(-1)
    advantages = advantages.expand_as(logprobs).masked_fill(~kept, 0.0)
    # Filled before any exp: an infinity at a masked token would give a NaN gradient later.
    log_ratio = (logprobs - behaviour_logprobs).masked_fill(~kept, 0.0)
    loss = aggregate(clipped_surrogate(log_ratio, advantages, clip, clip_high), kept, aggregation, totals)
    return loss, _diagnose(log_ratio.detach()[kept], advantages[kept], clip, clip_high)


def _diagnose(log_ratio: Tensor, advantages: Tensor, clip: float, clip_high: float) -> Diagnostics:
    """Diagnostics of the action tokens, given as [N]."""
    if not len(log_ratio):
        return Diagnostics()
    ratio = log_ratio.exp()
    clipped = ((ratio < 1.0 - clip) & (advantages < 0)) | ((ratio > 1.0 + clip_high) & (advantages > 0))
    return Diagnostics(
        tokens=len(ratio),
        clipped=clipped.sum().item(),
        ratio_total=ratio.sum().item(),
        ratio_max=ratio.max().item(),
        behaviour_kl_total=k3(torch.zeros_like(log_ratio), log_ratio).sum().item(),
    )


def grpo_loss(
    logprobs: Tensor,
    behaviour_logprobs: Tensor,
    reference_logprobs: Tensor | None,
    advantages: Tensor,
    mask: Tensor,
    totals: StepTotals,
    *,
    clip: float,
    kl: float,
    clip_high: float | None = None,
    aggregation: Aggregation = "token",
    correct_kl: bool = True,
) -> GrpoLoss:
    """GRPO: the clipped surrogate plus `kl` times the K3 estimate of KL(policy || reference).

    Equals TRL 1.16's `GRPOTrainer` with `loss_type` "dapo" for "token" and "grpo" for "sequence".
    Arguments as in `policy_loss`; `reference_logprobs` [B, T] carry no gradient and may be None when
    `kl` is 0. With `correct_kl` each token's estimate is weighed by its ratio to the behaviour policy,
    whose gradient is then that of the true divergence (DeepSeek-V3.2, arXiv:2512.02556; the default
    in TRL too); without it, it is the plain term of the GRPO paper. The `kl` returned is always plain.
    """
    policy, diagnostics = policy_loss(
        logprobs, behaviour_logprobs, advantages, mask, totals, clip=clip, clip_high=clip_high, aggregation=aggregation
    )
    if reference_logprobs is None:
        if kl:
            raise ValueError("a KL weight needs the reference policy's log-probabilities")
        return GrpoLoss(policy, policy.detach(), None, diagnostics)
    masked = ~mask.bool()
    divergence = k3(logprobs.masked_fill(masked, 0.0), reference_logprobs.masked_fill(masked, 0.0))
    mean_divergence = aggregate(divergence.detach(), mask, aggregation, totals)
    if not kl:
        return GrpoLoss(policy, policy.detach(), mean_divergence, diagnostics)
    if correct_kl:
        divergence = divergence * (logprobs - behaviour_logprobs).masked_fill(masked, 0.0).exp()
    loss = policy + kl * aggregate(divergence, mask, aggregation, totals)
    return GrpoLoss(loss, policy.detach(), mean_divergence, diagnostics)
