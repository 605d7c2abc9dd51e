"""Micro-batches: stored trajectories as tensors that fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, SupportsFloat, cast

import torch
from torch import Tensor

from tracewheel.core.errors import DataError
from tracewheel.learner.kernels.packing import Layout, common_length
from tracewheel.learner.losses import StepTotals

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Batch:
    """B trajectories, padded on the right to T tokens.

    Invariants: `attention_mask` is 1 on real tokens. `action_mask` is 1 only on real tokens, never on a row's first
    token, and at least once per row; where it is 0, `behaviour_logprobs` and `advantages` are 0. `turns` [B, T] is
    the number of an action token's turn, -1 elsewhere. `temperature` [B] is the sampling temperature of each row,
    and `rows` [B] its position in the table of trajectories.
    """

    token_ids: Tensor
    attention_mask: Tensor
    action_mask: Tensor
    behaviour_logprobs: Tensor
    advantages: Tensor
    turns: Tensor
    temperature: Tensor
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
    advantages: list[float]
    temperature: float


def micro_batches(
    trajectories: pd.DataFrame,
    advantages: Sequence[float] | Sequence[Sequence[float]],
    micro_batch_tokens: int,
    padding: int = 0,
    layout: Layout = "padded",
) -> list[Batch]:
    """Cut trajectories into batches for one layout, deterministically.

    `padded`: rows of similar length, longest first. `packed`: as few batches as possible, balanced in length.
    `shared_prefix`: rows with a common beginning together.

    Trajectories without action tokens are left out: there is nothing to learn from them, and attention over an
    empty one, a row of padding alone, is undefined.

    Args:
        trajectories: rows of `Trajectory.to_record`: token_ids, action_mask, logprobs, and temperature (default 1).
        advantages: for each row one number for all its action tokens, or one number per token.
        micro_batch_tokens: the most tokens in a batch; `padded` counts padding, `shared_prefix` counts a common
            beginning once. A longer trajectory is a batch of its own.
        padding: the token id of the padding on the right.
        layout: how batches lie in memory, see `token_logprobs.action_logprobs`.

    Raises:
        DataError: the columns of a trajectory differ in length, or its first token is an action.
    """
    if len(advantages) != len(trajectories):
        raise ValueError(f"{len(trajectories)} trajectories and {len(advantages)} advantages")
    rows = [row for row in _rows(trajectories, advantages) if any(row.action_mask)]
    return [_pad(part, padding) for part in _CUTS[layout](rows, micro_batch_tokens)]


def text_batches(text: pd.DataFrame, micro_batch_tokens: int, layout: Layout = "padded") -> list[Batch]:
    """Cut tokenised examples into batches for imitation; see `micro_batches`.

    Args:
        text: `input_ids`, and `assistant_masks` with 1 on the tokens of the loss.
    """
    nothing = text["input_ids"].map(lambda ids: [0.0] * len(ids))
    rows = text.rename(columns={"input_ids": "token_ids", "assistant_masks": "action_mask"}).assign(logprobs=nothing)
    return micro_batches(rows, [0.0] * len(rows), micro_batch_tokens, layout=layout)


def _cut_padded(rows: list[_Row], cap: int) -> list[list[_Row]]:
    rows = _longest_first(rows)
    parts, start = [], 0
    while start < len(rows):
        size = max(1, cap // len(rows[start].token_ids))
        parts.append(rows[start : start + size])
        start += size
    return parts


def _cut_packed(rows: list[_Row], cap: int) -> list[list[_Row]]:
    """Longest row first, each into the emptiest part; one more part until all fit the cap."""
    rows = _longest_first(rows)
    whole = [[row] for row in rows if len(row.token_ids) > cap]
    rows = rows[len(whole) :]
    number = -(-sum(len(row.token_ids) for row in rows) // cap)
    while True:
        parts: list[list[_Row]] = [[] for _ in range(number)]
        fill = [(0, part) for part in range(number)]
        for row in rows:
            tokens, part = heappop(fill)
            parts[part].append(row)
            heappush(fill, (tokens + len(row.token_ids), part))
        if all(tokens <= cap for tokens, _ in fill):
            return whole + parts
        number += 1


def _cut_shared(rows: list[_Row], cap: int) -> list[list[_Row]]:
    """Rows sorted by their tokens; a row counts only the tokens after its common beginning with the one before."""
    parts: list[list[_Row]] = []
    tokens = 0
    for row in sorted(rows, key=lambda row: row.token_ids):
        new = len(row.token_ids) - (common_length(parts[-1][-1].token_ids, row.token_ids) if parts else 0)
        if parts and tokens + new <= cap:
            parts[-1].append(row)
            tokens += new
        else:
            parts.append([row])
            tokens = len(row.token_ids)
    return parts


_CUTS: dict[Layout, Callable[[list[_Row], int], list[list[_Row]]]] = {
    "padded": _cut_padded,
    "packed": _cut_packed,
    "shared_prefix": _cut_shared,
}


def _longest_first(rows: list[_Row]) -> list[_Row]:
    return sorted(rows, key=lambda row: -len(row.token_ids))


def step_totals(batches: Sequence[Batch], length: int = 0) -> StepTotals:
    """The totals of one optimiser step on `batches`; `length` is the divisor of the constant aggregation."""
    return StepTotals(
        tokens=sum(int(batch.action_mask.sum()) for batch in batches),
        sequences=sum(len(batch.token_ids) for batch in batches),
        length=length,
    )


def turn_numbers(action_mask: Sequence[int]) -> list[int]:
    """The number of the turn each token belongs to, counted from 0; -1 for tokens the policy did not sample.

    A turn is an unbroken run of sampled tokens.
    """
    numbers, turn, before = [], -1, 0
    for sampled in action_mask:
        turn += int(sampled and not before)
        numbers.append(turn if sampled else -1)
        before = sampled
    return numbers


def _rows(trajectories: pd.DataFrame, advantages: Sequence[float] | Sequence[Sequence[float]]) -> list[_Row]:
    temperatures = trajectories["temperature"] if "temperature" in trajectories else [1.0] * len(trajectories)
    columns = zip(
        trajectories["token_ids"], trajectories["action_mask"], trajectories["logprobs"], temperatures, advantages, strict=True
    )
    rows = []
    for position, (ids, mask, logprobs, temperature, advantage) in enumerate(columns):
        per_token = (
            [float(advantage)] * len(ids) if isinstance(advantage, SupportsFloat) else list(cast("Sequence[float]", advantage))
        )
        row = _Row(position, list(ids), list(mask), list(logprobs), per_token, float(temperature))
        lengths = {len(values) for values in (row.token_ids, row.action_mask, row.logprobs, row.advantages)}
        if len(lengths) > 1:
            raise DataError(
                f"trajectory in row {position}: token_ids, action_mask, logprobs and advantages have "
                f"{len(row.token_ids)}, {len(row.action_mask)}, {len(row.logprobs)} and {len(row.advantages)} entries"
            )
        if row.action_mask and row.action_mask[0]:
            raise DataError(f"trajectory in row {position}: its first token is an action, but nothing precedes it")
        rows.append(row)
    return rows


def _pad(rows: list[_Row], padding: int) -> Batch:
    longest = max(len(row.token_ids) for row in rows)
    missing = [longest - len(row.token_ids) for row in rows]

    def padded(column: list[list[Any]], filling: float) -> Tensor:
        return torch.tensor([values + [filling] * short for values, short in zip(column, missing, strict=True)])

    action_mask = padded([row.action_mask for row in rows], 0)
    observed = action_mask == 0
    return Batch(
        token_ids=padded([row.token_ids for row in rows], padding),
        attention_mask=torch.tensor([[1] * (longest - short) + [0] * short for short in missing]),
        action_mask=action_mask,
        behaviour_logprobs=padded([row.logprobs for row in rows], 0.0).float().masked_fill(observed, 0.0),
        advantages=padded([row.advantages for row in rows], 0.0).float().masked_fill(observed, 0.0),
        turns=padded([turn_numbers(row.action_mask) for row in rows], -1),
        temperature=torch.tensor([row.temperature for row in rows]),
        rows=torch.tensor([row.position for row in rows]),
    )
