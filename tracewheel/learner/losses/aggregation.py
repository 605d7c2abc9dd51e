"""Aggregation of per-token values to one number, and the losses beside the policy's: imitation of successes, and the critic's.

The critic's loss is that of Schulman et al. 2017, with the clip of the PPO baselines; imitation of an update's own successes is
VAPO's (arXiv:2504.05118).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Aggregation = Literal["token", "sequence", "constant"]


@dataclass(frozen=True)
class StepTotals:
    """Counts over one optimiser step: all its micro-batches, on all processes.

    `length` is the divisor of the `constant` aggregation: the most tokens a sequence may have.
    """

    tokens: int
    sequences: int
    length: int = 0


def aggregate(values: Tensor, mask: Tensor, kind: Aggregation, totals: StepTotals) -> Tensor:
    """Aggregate per-token `values` [B, T] over the tokens where `mask` [B, T] is 1.

    `token`: the sum over the step's action tokens, divided by their number; tokens weigh the same
    (DAPO, Yu et al. 2025). `sequence`: the mean over each sequence's tokens, then the mean over the step's
    sequences; sequences weigh the same (GRPO, Shao et al. 2024). `constant`: the sum, divided by the step's
    sequences times `totals.length`; a token's weight does not depend on the lengths in the batch (Dr. GRPO,
    Liu et al. 2025).

    Raises:
        ValueError: the kind is `constant` and `totals` has no length.
    """
    kept = mask.bool()
    return _AGGREGATIONS[kind](values.masked_fill(~kept, 0.0), kept, totals)


def _by_token(values: Tensor, kept: Tensor, totals: StepTotals) -> Tensor:
    return values.sum() / max(totals.tokens, 1)


def _by_sequence(values: Tensor, kept: Tensor, totals: StepTotals) -> Tensor:
    return (values.sum(-1) / kept.sum(-1).clamp(min=1)).sum() / max(totals.sequences, 1)


def _by_constant(values: Tensor, kept: Tensor, totals: StepTotals) -> Tensor:
    if totals.length < 1:
        raise ValueError("the constant aggregation needs StepTotals.length, the most tokens a sequence may have")
    return values.sum() / (max(totals.sequences, 1) * totals.length)


_AGGREGATIONS: dict[Aggregation, Callable[[Tensor, Tensor, StepTotals], Tensor]] = {
    "token": _by_token,
    "sequence": _by_sequence,
    "constant": _by_constant,
}


def positive_example_loss(logprobs: Tensor, mask: Tensor, succeeded: Tensor, tokens: int) -> Tensor:
    """The negative log-likelihood of the action tokens of successes, summed over a micro-batch and divided by `tokens`.

    Args:
        logprobs: [B, T] of the policy, with gradients.
        mask: [B, T], 1 where the policy sampled the token.
        succeeded: [B] bool.
        tokens: Action tokens of all successes of the optimiser step; with 0 the loss is 0.
    """
    kept = mask.bool() & succeeded[:, None]
    return -logprobs.masked_fill(~kept, 0.0).sum() / max(tokens, 1)


def value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, totals: StepTotals, clip: float | None
) -> Tensor:
    """Half the squared error of the values, per action token of the step.

    With `clip` it is the larger of that error and the error of the value clamped to within `clip` of the old
    value: a value that has moved further towards its return gets no gradient.

    Args:
        values: [B, T] of the critic, with gradients.
        old_values: [B, T], from which the advantages were computed.
        returns: [B, T], the targets.
        mask: [B, T], 1 at action tokens.
        totals: of the whole optimiser step.
        clip: how far a value may move in an update, in units of the return; None for no limit.
    """
    masked = ~mask.bool()
    values, old, returns = (each.masked_fill(masked, 0.0) for each in (values, old_values.detach(), returns.detach()))
    errors = (values - returns).square()
    if clip is not None:
        held = old + (values - old).clamp(-clip, clip)
        errors = torch.maximum(errors, (held - returns).square())
    return aggregate(0.5 * errors, mask, "token", totals)


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> float | None:
    """1 - Var(returns - values) / Var(returns) over the tokens where `mask` is 1.

    1 is a perfect critic, 0 as good as a constant, negative worse. None when the returns do not vary.
    """
    kept = mask.bool()
    targets, errors = returns[kept].double(), (returns - values.detach())[kept].double()
    if len(targets) < 2 or float(targets.var()) <= 1e-12:
        return None
    return 1.0 - float(errors.var() / targets.var())
