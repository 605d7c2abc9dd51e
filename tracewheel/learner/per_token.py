"""Values of single tokens, moved between per-trajectory tensors and padded batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tracewheel.learner.batch import Batch

if TYPE_CHECKING:
    from tracewheel.learner.backends.backend import Backend


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
