"""Aggregation of per-token values to one number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

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
