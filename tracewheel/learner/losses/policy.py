"""The policy loss: a surrogate of the expected advantage, aggregated over a step's action tokens; and its diagnostics."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from tracewheel.config import SurrogateConfig
from tracewheel.core.kind_table import import_class
from tracewheel.learner.kinds import SURROGATES
from tracewheel.learner.losses.aggregation import Aggregation, StepTotals, aggregate
from tracewheel.learner.losses.ratios import SurrogateTokens, bounded, k3


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


@dataclass(frozen=True)
class PolicyTokens:
    """The tokens of a micro-batch, as tensors [B, T]. Values where `mask` is 0 may be anything.

    Args:
        logprobs: of the policy, with gradients.
        old_logprobs: of the policy in the ratio's denominator: the one that sampled the tokens, or the policy at the
            start of the update (decoupled PPO, Hilton et al. 2022, arXiv:2110.00641).
        advantages: of each token.
        mask: 1 where the policy sampled the token.
        weights: factors on each token's term, without gradients (see `correction_weights`); None for 1.
        behaviour_logprobs: of the policy that sampled the tokens, for the diagnostics; None for `old_logprobs`.

    Raises:
        ValueError: the tensors are not all of one shape [B, T].
    """

    logprobs: Tensor
    old_logprobs: Tensor
    advantages: Tensor
    mask: Tensor
    weights: Tensor | None = None
    behaviour_logprobs: Tensor | None = None

    def __post_init__(self) -> None:
        given = [getattr(self, spec.name) for spec in fields(self)]
        shapes = {tuple(each.shape) for each in given if each is not None}
        if len(shapes) > 1 or self.logprobs.ndim != 2:
            raise ValueError(f"the tensors of a policy loss are not all of one shape [B, T]: {sorted(shapes)}")


@dataclass(frozen=True)
class PolicyLoss:
    """The scalar `loss` of one micro-batch, with its gradient, and its diagnostics."""

    loss: Tensor
    diagnostics: Diagnostics


def policy_loss(config: SurrogateConfig, tokens: PolicyTokens, totals: StepTotals, aggregation: Aggregation) -> PolicyLoss:
    """The loss of one micro-batch of a step, over the action tokens.

    Equals TRL 1.16's `GRPOTrainer` (grpo, dr_grpo, dapo, cispo, sapo, and GSPO as its sequence-level
    importance sampling), for the same tokens within 20 nats of each other; beyond, log-ratios are clamped and
    have no gradient (`bounded`). Values where the mask is 0 do not change the loss, and their gradients are exactly 0.

    Args:
        config: the surrogate.
        tokens: of the micro-batch.
        totals: of the whole optimiser step.
        aggregation: see `aggregate`.
    """
    kept = tokens.mask.bool()
    # Filled before any arithmetic: an infinity at a masked token would become a NaN gradient later.
    logprobs, old, advantages = (
        each.masked_fill(~kept, 0.0) for each in (tokens.logprobs, tokens.old_logprobs.detach(), tokens.advantages.detach())
    )
    sampled = tokens.behaviour_logprobs
    behaviour = old if sampled is None else sampled.detach().masked_fill(~kept, 0.0)
    terms, clipped = _terms(config, logprobs, old, advantages, kept)
    if tokens.weights is not None:
        terms = terms * tokens.weights.detach().masked_fill(~kept, 0.0)
    loss = aggregate(terms, kept, aggregation, totals)
    return PolicyLoss(loss, diagnose(logprobs - old, logprobs - behaviour, clipped, tokens.weights, kept))


def _terms(config: SurrogateConfig, logprobs: Tensor, old: Tensor, advantages: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """The per-token loss [B, T] and which tokens it clipped [B, T]."""
    surrogate = import_class(SURROGATES[config.kind], "surrogate")
    found: tuple[Tensor, Tensor] = surrogate(config, SurrogateTokens(logprobs, bounded(logprobs - old), advantages, kept))
    return found
