"""From per-token values to one number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Aggregation = Literal["token", "sequence", "constant"]


@dataclass(frozen=True)
class StepTotals:
    """What one optimiser step holds, all its micro-batches (and processes) together.

    `length` is the constant that the `constant` aggregation divides by: the most tokens a sequence may have.
    """

    tokens: int
    sequences: int
    length: int = 0


def aggregate(values: Tensor, mask: Tensor, kind: Aggregation, totals: StepTotals) -> Tensor:
    """One number from per-token `values` [B, T], over the tokens where `mask` [B, T] is 1.

    `token`: the sum over the step's action tokens, divided by their number; every token weighs the same
    (DAPO, Yu et al. 2025). `sequence`: the mean over each sequence's tokens, then the mean over the step's
    sequences; every sequence weighs the same (GRPO, Shao et al. 2024). `constant`: the sum, divided by the
    step's sequences times `totals.length`, so that a token weighs the same whatever the lengths in the batch
    are (Dr. GRPO, Liu et al. 2025).

    Raises:
        ValueError: `constant`, and `totals` has no length.
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
