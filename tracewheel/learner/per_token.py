"""Values of single tokens, moved between per-trajectory tensors and padded batches, and the cross-entropy of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tracewheel.learner.batch import Batch, step_totals
from tracewheel.learner.kernels.token_logprobs import action_logprobs

if TYPE_CHECKING:
    from tracewheel.learner.backends.backend import Backend
    from tracewheel.learner.kernels.packing import Layout


def compute_per_token(
    backend: Backend, batches: Sequence[Batch], values: Callable[[Batch], Tensor], n_rows: int
) -> list[Tensor]:
    """Run `values` (a batch to [B, T]) without gradient; returns one tensor [T] on the CPU for each of `n_rows` rows.

    T is the row's padded length in its batch. Rows that are in no batch get an empty tensor.
    """
    per_row: list[Tensor | None] = [None] * n_rows
    with torch.no_grad():
        for batch in backend.shard(list(batches)):
            for position, row in zip(batch.rows.tolist(), values(batch).float().cpu(), strict=True):
                if position >= 0:
                    per_row[position] = row
    missing = set(range(n_rows)) - {position for batch in batches for position in batch.rows.tolist()}
    for position in missing:
        per_row[position] = torch.zeros(0)
    return backend.merge(per_row)


def pad_per_token(per_row: Sequence[Tensor], batch: Batch) -> Tensor:
    """The values of a batch's rows as [B, T] on its device; 0 where a row is shorter."""
    out = torch.zeros(batch.token_ids.shape)
    for number, position in enumerate(batch.rows.tolist()):
        if position < 0:
            continue
        row = per_row[position][: out.shape[1]]
        out[number, : len(row)] = row
    return out.to(batch.token_ids.device)


def add_cross_entropy(backend: Backend, batches: list[Batch], layout: Layout, weight: float = 1.0) -> float:
    """Add the gradient of the weighted mean cross-entropy over the action tokens of all batches.

    Args:
        backend: Divides the batches among processes.
        batches: Those of an optimiser step, on the model's device.
        layout: How they lie in memory while they pass through the model.
        weight: Multiplies the gradient.

    Returns:
        This process's part of the unweighted mean; the parts of all processes add up to it.
    """
    tokens = max(1, step_totals(batches).tokens)
    total = 0.0
    for batch in backend.shard(batches):
        loss = -action_logprobs(backend.model, batch, layout=layout)[0].sum() / tokens
        backend.backward(weight * loss)
        total += loss.item()
    return total
