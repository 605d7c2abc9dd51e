"""From stored trajectories to micro-batches of tensors that fit in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tracewheel.errors import DataError
from tracewheel.losses import StepTotals

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Batch:
    """B trajectories, padded on the right to T tokens.

    Invariants: `attention_mask` is 1 on real tokens; `action_mask` is 1 only on real tokens, never on
    a sequence's first, and at least once in each row; `behaviour_logprobs` is 0 where it is 0. `rows`
    are the positions of the trajectories in the table they came from.
    """

    token_ids: Tensor
    attention_mask: Tensor
    action_mask: Tensor
    behaviour_logprobs: Tensor
    advantages: Tensor
    rows: Tensor

    def to(self, device: str | torch.device) -> Batch:
        """The same batch on another device."""
        return Batch(**{spec.name: getattr(self, spec.name).to(device) for spec in fields(self)})


@dataclass(frozen=True)
class _Row:
    position: int
    token_ids: list[int]
    action_mask: list[int]
    logprobs: list[float]


def micro_batches(
    trajectories: pd.DataFrame, advantages: Sequence[float] | Tensor, micro_batch_tokens: int, padding: int = 0
) -> list[Batch]:
    """Cut trajectories into batches of like length, the longest first, the same way each time.

    A trajectory without action tokens has nothing to learn from and is left out: an empty one would
    be a row of padding alone, on which attention is undefined.

    Args:
        trajectories: rows of `Trajectory.to_record` (token_ids, action_mask, logprobs are read).
        advantages: one for each row.
        micro_batch_tokens: a batch holds at most so many tokens, padding included; a longer
            trajectory is a batch of its own.
        padding: the token id that fills the right side.

    Raises:
        DataError: the columns of a trajectory differ in length, or its first token is an action.
    """
    values = torch.as_tensor(advantages, dtype=torch.float32)
    if values.shape != (len(trajectories),):
        raise ValueError(f"{len(trajectories)} trajectories and advantages of shape {tuple(values.shape)}")
    rows = [row for row in _rows(trajectories) if any(row.action_mask)]
    rows.sort(key=lambda row: -len(row.token_ids))
    batches, start = [], 0
    while start < len(rows):
        size = max(1, micro_batch_tokens // len(rows[start].token_ids))
        batches.append(_pad(rows[start : start + size], values, padding))
        start += size
    return batches


def step_totals(batches: Sequence[Batch]) -> StepTotals:
    """What the loss divides by, when `batches` together make one optimiser step."""
    return StepTotals(
        tokens=sum(int(batch.action_mask.sum()) for batch in batches), sequences=sum(len(batch.token_ids) for batch in batches)
    )


def _rows(trajectories: pd.DataFrame) -> list[_Row]:
    columns = zip(trajectories["token_ids"], trajectories["action_mask"], trajectories["logprobs"], strict=True)
    rows = []
    for position, (ids, mask, logprobs) in enumerate(columns):
        row = _Row(position, list(ids), list(mask), list(logprobs))
        if not len(row.token_ids) == len(row.action_mask) == len(row.logprobs):
            raise DataError(
                f"trajectory in row {position}: token_ids, action_mask and logprobs have "
                f"{len(row.token_ids)}, {len(row.action_mask)} and {len(row.logprobs)} entries"
            )
        if row.action_mask and row.action_mask[0]:
            raise DataError(
                f"trajectory in row {position}: its first token is an action, so nothing came before it to sample from"
            )
        rows.append(row)
    return rows


def _pad(rows: list[_Row], advantages: Tensor, padding: int) -> Batch:
    longest = len(rows[0].token_ids)
    missing = [longest - len(row.token_ids) for row in rows]
    action_mask = torch.tensor([row.action_mask + [0] * short for row, short in zip(rows, missing, strict=True)])
    logprobs = torch.tensor([row.logprobs + [0.0] * short for row, short in zip(rows, missing, strict=True)])
    positions = torch.tensor([row.position for row in rows])
    return Batch(
        token_ids=torch.tensor([row.token_ids + [padding] * short for row, short in zip(rows, missing, strict=True)]),
        attention_mask=torch.tensor([[1] * (longest - short) + [0] * short for short in missing]),
        action_mask=action_mask,
        behaviour_logprobs=logprobs.float().masked_fill(action_mask == 0, 0.0),
        advantages=advantages[positions],
        rows=positions,
    )
