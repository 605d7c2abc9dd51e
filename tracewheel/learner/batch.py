"""Micro-batches: stored trajectories as tensors that fit in memory, and generic text that is mixed into every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, SupportsFloat, cast

import torch
from torch import Tensor

from tracewheel.core.errors import DataError
from tracewheel.core.forks import Forks, check_forks, forks_of, preceding, rows
from tracewheel.learner.kernels.packing import Layout, common_length
from tracewheel.learner.losses.aggregation import StepTotals
from tracewheel.learner.turn_masks import MASKS, RowMasks

if TYPE_CHECKING:
    import pandas as pd
import random
from pathlib import Path

from tracewheel.config import UpdateConfig
from tracewheel.policy.limits import read_token_ids


@dataclass(frozen=True)
class Batch:
    """B trajectories, padded on the right to T tokens.

    Invariants: `attention_mask` is 1 on real tokens. `action_mask` is 1 only on real tokens, never on a row's first
    token, and at least once per row; where it is 0, `behaviour_logprobs` and `advantages` are 0. `turns` [B, T] is
    the number of an action token's turn, -1 elsewhere. `temperature` [B] is the sampling temperature of each row,
    and `rows` [B] its position in the table of trajectories.

    Tokens are in flat order, each once. Where a trajectory has forks, `before` [B, T] is the index of the token that each
    one follows, -1 for none; it is None where every token follows the one before it.

    Where turns were held to a grammar, `masks` [M, W] are the distinct masks of allowed tokens, as bits, and `mask_numbers`
    [B, T] says which of them each token was drawn under, -1 for none. Both are None where every token could have come.
    """

    token_ids: Tensor
    attention_mask: Tensor
    action_mask: Tensor
    behaviour_logprobs: Tensor
    advantages: Tensor
    turns: Tensor
    temperature: Tensor
    rows: Tensor
    before: Tensor | None = None
    mask_numbers: Tensor | None = None
    masks: Tensor | None = None

    def to(self, device: str | torch.device) -> Batch:
        """The same batch on another device."""
        moved = {name: tensor.to(device) for name, tensor in self.tensors().items()}
        return replace(self, **moved, masks=None if self.masks is None else self.masks.to(device))

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of rows by name, without those that are None."""
        named = {spec.name: getattr(self, spec.name) for spec in fields(self) if spec.name != "masks"}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    def at_preceding(self, values: Tensor) -> Tensor:
        """For each token but a row's first, the entry of `values` [B, T, ...] at the token it follows: [B, T - 1, ...].

        Entries of tokens that follow none are undefined.
        """
        if self.before is None:
            return values[:, :-1]
        numbers = torch.arange(len(values), device=values.device).unsqueeze(-1)
        return values[numbers, self.before[:, 1:].clamp(min=0)]


@dataclass(frozen=True)
class _Row:
    position: int
    token_ids: list[int]
    action_mask: list[int]
    logprobs: list[float]
    advantages: list[float]
    temperature: float
    forks: list[list[int]]
    masks: RowMasks | None = None

    @cached_property
    def lengths(self) -> list[int]:
        """The tokens of each of its rows."""
        return [len(row) for row in rows(self.forks, len(self.token_ids))] if self.forks else [len(self.token_ids)]


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
        trajectories: rows of `Trajectory.to_record`: token_ids, action_mask, logprobs, temperature (default 1), forks
            (default none), and the masks of `with_masks` (default none).
        advantages: for each row one number for all its action tokens, or one number per token.
        micro_batch_tokens: the most tokens in a batch; `padded` counts padding and each row of a forked trajectory,
            `shared_prefix` counts a common beginning once. A longer trajectory is a batch of its own.
        padding: the token id of the padding on the right.
        layout: how batches lie in memory, see `token_logprobs.action_logprobs`.

    Raises:
        DataError: the columns of a trajectory differ in length, its first token is an action, or its forks are no tree.
    """
    if len(advantages) != len(trajectories):
        raise ValueError(f"{len(trajectories)} trajectories and {len(advantages)} advantages")
    with_actions = [row for row in _rows(trajectories, advantages) if any(row.action_mask)]
    return [_pad(part, padding) for part in _CUTS[layout](with_actions, micro_batch_tokens)]


def text_batches(text: pd.DataFrame, micro_batch_tokens: int, layout: Layout = "padded") -> list[Batch]:
    """Cut tokenised examples into batches for imitation; see `micro_batches`.

    Args:
        text: `input_ids`, `assistant_masks` with 1 on the tokens of the loss, and `forks` (default none).
    """
    nothing = text["input_ids"].map(lambda ids: [0.0] * len(ids))
    table = text.rename(columns={"input_ids": "token_ids", "assistant_masks": "action_mask"}).assign(logprobs=nothing)
    return micro_batches(table, [0.0] * len(table), micro_batch_tokens, layout=layout)


def _cut_padded(rows: list[_Row], cap: int) -> list[list[_Row]]:
    parts: list[list[_Row]] = []
    widest, filled = 0, 0  # of the last part
    for row in sorted(rows, key=lambda row: -max(row.lengths)):
        if parts and (filled + len(row.lengths)) * widest <= cap:
            parts[-1].append(row)
            filled += len(row.lengths)
        else:
            parts.append([row])
            widest, filled = max(row.lengths), len(row.lengths)
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


def turn_numbers(action_mask: Sequence[int], forks: Forks = ()) -> list[int]:
    """The number of the turn each token belongs to, counted from 0; -1 for tokens the policy did not sample.

    A turn is an unbroken run of sampled tokens without a fork in it.
    """
    starts = {start for start, _ in forks}
    numbers, turn, before = [], -1, 0
    for index, sampled in enumerate(action_mask):
        turn += int(sampled and (not before or index in starts))
        numbers.append(turn if sampled else -1)
        before = sampled
    return numbers


def turn_starts(turns: Tensor) -> Tensor:
    """[B, T] bool: the first token of each turn. `turns` [B, T] is -1 off the actions."""
    before = torch.cat([torch.full_like(turns[:, :1], -1), turns[:, :-1]], 1)
    return (turns >= 0) & (turns != before)


def _rows(trajectories: pd.DataFrame, advantages: Sequence[float] | Sequence[Sequence[float]]) -> list[_Row]:
    temperatures = trajectories["temperature"] if "temperature" in trajectories else [1.0] * len(trajectories)
    columns = zip(
        trajectories["token_ids"],
        trajectories["action_mask"],
        trajectories["logprobs"],
        temperatures,
        advantages,
        forks_of(trajectories),
        trajectories[MASKS] if MASKS in trajectories else [None] * len(trajectories),
        strict=True,
    )
    found = []
    for position, (ids, mask, logprobs, temperature, advantage, forks, masks) in enumerate(columns):
        per_token = (
            [float(advantage)] * len(ids) if isinstance(advantage, SupportsFloat) else list(cast("Sequence[float]", advantage))
        )
        row = _Row(position, list(ids), list(mask), list(logprobs), per_token, float(temperature), forks, masks)
        lengths = {len(values) for values in (row.token_ids, row.action_mask, row.logprobs, row.advantages)}
        if len(lengths) > 1:
            raise DataError(
                f"trajectory in row {position}: token_ids, action_mask, logprobs and advantages have "
                f"{len(row.token_ids)}, {len(row.action_mask)}, {len(row.logprobs)} and {len(row.advantages)} entries"
            )
        _check_forks(row)
        if row.action_mask and row.action_mask[0]:
            raise DataError(f"trajectory in row {position}: its first token is an action, but nothing precedes it")
        found.append(row)
    return found


def _check_forks(row: _Row) -> None:
    try:
        check_forks(row.forks, len(row.token_ids))
    except DataError as error:
        raise DataError(f"trajectory in row {row.position}: {error}") from error
    if any(after < 0 and row.action_mask[start] for start, after in row.forks):
        raise DataError(f"trajectory in row {row.position}: the first token of a fork is an action, but nothing precedes it")


def _pad(rows: list[_Row], padding: int) -> Batch:
    longest = max(len(row.token_ids) for row in rows)
    missing = [longest - len(row.token_ids) for row in rows]

    def padded(column: list[list[Any]], filling: float) -> Tensor:
        return torch.tensor([values + [filling] * short for values, short in zip(column, missing, strict=True)])

    action_mask = padded([row.action_mask for row in rows], 0)
    observed = action_mask == 0
    before = [preceding(row.forks, len(row.token_ids)) + list(range(len(row.token_ids) - 1, longest - 1)) for row in rows]
    batch = Batch(
        token_ids=padded([row.token_ids for row in rows], padding),
        attention_mask=torch.tensor([[1] * (longest - short) + [0] * short for short in missing]),
        action_mask=action_mask,
        behaviour_logprobs=padded([row.logprobs for row in rows], 0.0).float().masked_fill(observed, 0.0),
        advantages=padded([row.advantages for row in rows], 0.0).float().masked_fill(observed, 0.0),
        turns=padded([turn_numbers(row.action_mask, row.forks) for row in rows], -1),
        temperature=torch.tensor([row.temperature for row in rows]),
        rows=torch.tensor([row.position for row in rows]),
        before=torch.tensor(before) if any(row.forks for row in rows) else None,
    )
    if not any(row.masks for row in rows):
        return batch
    distinct: dict[bytes, int] = {}
    numbers = [_numbered(row, distinct) for row in rows]
    words = [torch.frombuffer(bytearray(mask), dtype=torch.int32) for mask in distinct]
    return replace(batch, mask_numbers=padded(numbers, -1), masks=torch.stack(words))


def _numbered(row: _Row, distinct: dict[bytes, int]) -> list[int]:
    """The mask of each token of a row, by its number among the distinct ones of a batch, which grow."""
    if row.masks is None:
        return [-1] * len(row.token_ids)
    own = [distinct.setdefault(mask.tobytes(), len(distinct)) for mask in row.masks.bits]
    return [-1 if number < 0 else own[number] for number in row.masks.numbers]


REPLAY_WEIGHT = 0.3  # of the text's loss, beside that of the trajectories


class TokenisedText:
    """Tokenised examples with a loss mask; each step draws a few.

    Args:
        path: Their file; None for no example.
        base: The base that reads them.
        key: Setting that names the file, for errors.
        rows: How many examples a step draws.
        micro_batch_tokens: See `text_batches`.

    Raises:
        DataError: the file cannot be read.
        ConfigError: its ids are those of another tokenizer than the base's.
    """

    def __init__(self, path: Path | None, base: str, key: str, rows: int, micro_batch_tokens: int) -> None:
        self._rows = rows if path else 0
        self._cap = micro_batch_tokens
        if path and rows:
            self._table = read_token_ids(path, base, key)

    @property
    def steps(self) -> int:
        """How many steps draw as many examples as there are."""
        return -(-len(self._table) // self._rows) if self._rows else 0

    def __bool__(self) -> bool:
        return self._rows > 0

    def draw(self, rng: random.Random) -> list[Batch]:
        """The batches of one step; empty where there is no text."""
        if not self._rows:
            return []
        chosen = sorted(rng.sample(range(len(self._table)), min(self._rows, len(self._table))))
        return text_batches(self._table.iloc[chosen], self._cap)


def replay_text(config: UpdateConfig, base: str) -> TokenisedText:
    """The generic text that a profile mixes into each step of its updates."""
    path = Path(config.replay_path) if config.replay_path else None
    return TokenisedText(path, base, "learner.replay_path", config.replay_rows, config.micro_batch_tokens)
