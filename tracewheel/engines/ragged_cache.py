"""A key-value cache whose rows have their own lengths.

Row r holds `lengths[r]` valid positions. A pass gives some rows new tokens, all in one sequence without padding; their
keys and values go after the row's valid positions. A row that holds what another holds, and gets the same tokens, takes
the other's new keys and values.

Attention is planned once for all layers, in blocks of rows that get about equally many tokens. A block reads the buffers in
place where its rows lie close together, and otherwise a copy of its rows. Rows in between are computed too, and dropped from
the result.

Legend: N tokens of a pass, R rows in it, H key-value heads, G query heads that share one, D head dimension.
Of a block: R its rows, S buffer rows that it reads, W its widest chunk, L its longest row.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from tracewheel.core.errors import InputError

DENSE = 0.5  # a block whose rows are at least this share of their span reads the buffers in place
BLOCK_ROWS = 64
BLOCK_SCORES = 1 << 22  # queries times keys over all rows of a block: bounds its mask


@dataclass(frozen=True)
class Block:
    """Rows and their tokens: those from `begin` to `end` of the pass. Padding repeats a row's last token.

    Attributes:
        rows: The buffer rows that it reads: a slice, or [S].
        tokens: [S, W], positions of their queries in the pass; a row in between takes the first token.
        real: [end - begin], positions of the block's tokens in S * W; None if they are all.
        longest: L.
        mask: [S, 1, W, L], added to the scores.
    """

    begin: int
    end: int
    rows: slice | torch.Tensor
    tokens: torch.Tensor
    real: torch.Tensor | None
    longest: int
    mask: torch.Tensor

    def attend(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float | None) -> torch.Tensor:
        """Attention of `query` [H * G, N, D] over `keys` and `values` [rows, H, positions, D]: [end - begin, H * G, D]."""
        key, value = keys[self.rows, :, : self.longest], values[self.rows, :, : self.longest]
        span, width = self.tokens.shape
        heads, _, dim = query.shape
        if self.real is None:
            asked = query[:, self.begin : self.end].unflatten(1, (span, width)).transpose(0, 1)  # [S, H * G, W, D]
        else:
            asked = query[:, self.tokens].transpose(0, 1)
        # Query heads that share keys become queries of one head, so no key is copied.
        groups = heads // key.shape[1]
        mask = self.mask if width == 1 else self.mask.repeat(1, 1, groups, 1)
        asked = asked.reshape(span, key.shape[1], groups * width, dim)
        seen = torch.nn.functional.scaled_dot_product_attention(asked, key, value, attn_mask=mask, scale=scale)
        seen = seen.reshape(span, heads, width, -1).transpose(1, 2).flatten(0, 1)
        return seen if self.real is None else seen[self.real]


def plan_blocks(
    rows: Sequence[int], counts: Sequence[int], ends: Sequence[int], dtype: torch.dtype, device: torch.device
) -> list[Block]:
    """The blocks of a pass, in the order of its tokens.

    Args:
        rows: The buffer rows, sorted by count and then by row.
        counts: The number of tokens that each gets.
        ends: The number of positions that each then holds.
        dtype: The masks' type.
        device: The buffers' device.
    """
    blocks, begin = [], 0
    for part in _cut(counts, ends):
        block = _plan(begin, rows[part], counts[part], ends[part], dtype, device)
        blocks.append(block)
        begin = block.end
    return blocks


def _cut(counts: Sequence[int], ends: Sequence[int]) -> Iterator[slice]:
    """Slices of rows with similar counts, within `BLOCK_ROWS` and `BLOCK_SCORES`."""
    bounds = [0]
    for index in range(1, len(counts)):
        begun = bounds[-1]
        size = (index + 1 - begun) * counts[index] * max(ends[begun : index + 1])
        similar = counts[index] <= 2 * counts[begun] and (counts[begun] > 1 or counts[index] == 1)
        if not similar or size > BLOCK_SCORES or index - begun == BLOCK_ROWS:
            bounds.append(index)
    return itertools.starmap(slice, itertools.pairwise([*bounds, len(counts)]))


def _plan(
    begin: int, rows: Sequence[int], counts: Sequence[int], ends: Sequence[int], dtype: torch.dtype, device: torch.device
) -> Block:
    given, width, longest = torch.tensor(counts), max(counts), max(ends)
    first = begin + given.cumsum(0) - given
    step = torch.arange(width).minimum(given[:, None] - 1)  # [R, W]
    tokens = first[:, None] + step
    positions = (torch.tensor(ends) - given)[:, None] + step
    low, span = min(rows), max(rows) - min(rows) + 1
    looked_at: slice | torch.Tensor = slice(low, low + span)
    places = torch.tensor(rows) - low
    if len(rows) < DENSE * span:
        looked_at, places, span = torch.tensor(rows, device=device), torch.arange(len(rows)), len(rows)
    tokens = torch.full((span, width), begin).index_copy_(0, places, tokens)
    positions = torch.zeros(span, width, dtype=torch.long).index_copy_(0, places, positions)
    real = (places[:, None] * width + torch.arange(width))[torch.arange(width) < given[:, None]]
    mask = torch.zeros(*positions.shape, longest, dtype=dtype)
    mask.masked_fill_(torch.arange(longest) > positions[:, :, None], float("-inf"))
    everything = torch.equal(real, torch.arange(tokens.numel()))
    return Block(
        begin,
        begin + sum(counts),
        looked_at,
        tokens.to(device),
        None if everything else real.to(device),
        longest,
        mask[:, None].to(device),
    )


SMALLEST = 256  # positions that the buffers begin with
Twins = Mapping[int, Sequence[int]]  # rows that hold the same as a row, by that row
NONE: Twins = MappingProxyType({})


class RaggedCache:
    """Buffers [rows, H, positions, D] for each layer, which grow by doubling, and the plan of the current pass.

    On a CPU they take memory only as they are written to.

    Args:
        model: The causal language model of transformers whose cache it is.
        longest: The most positions of a row; None if unknown.
    """

    def __init__(self, model: Any, longest: int | None = None) -> None:
        self.lengths: list[int] = []
        self._free: list[int] = []
        self._device, self._dtype = model.device, model.dtype
        self._longest = longest
        self._room = 0
        self._keys: dict[int, torch.Tensor] = {}
        self._values: dict[int, torch.Tensor] = {}
        self._blocks: list[Block] = []

    def take_row(self) -> int:
        """Take the lowest free row; it is empty."""
        if not self._free:
            self.lengths.append(0)
            return len(self.lengths) - 1
        row = heapq.heappop(self._free)
        self.lengths[row] = 0
        return row

    def free_row(self, row: int) -> None:
        """Give a row back."""
        heapq.heappush(self._free, row)

    def begin(self, rows: Sequence[int], counts: Sequence[int], twins: Twins = NONE) -> torch.Tensor:
        """Plan a pass that gives `counts` [R] tokens to `rows` [R].

        Args:
            rows: In the order of their tokens in the pass: by count, then by row.
            counts: Ascending.
            twins: For some of `rows`, the other rows that hold the same and get the same tokens.

        Returns:
            Position ids [1, N].
        """
        starts = [self.lengths[row] for row in rows]
        ends = [start + count for start, count in zip(starts, counts, strict=True)]
        self._reserve(max(ends))
        spread = torch.tensor(counts)
        first = spread.cumsum(0) - spread
        positions = (torch.tensor(starts) - first).repeat_interleave(spread) + torch.arange(sum(counts))
        self._blocks = plan_blocks(rows, counts, ends, self._dtype, self._device)
        place = dict(zip(rows, range(len(rows)), strict=True))
        order = [*range(len(rows)), *(place[row] for row in twins for _ in twins[row])]
        stored_rows = [*rows, *itertools.chain.from_iterable(twins.values())]
        sizes = spread[order]
        within = torch.arange(int(sizes.sum())) - (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
        stored = first[order].repeat_interleave(sizes) + within
        self._stored = stored.to(self._device) if twins else None
        self._token_rows = torch.tensor(stored_rows).repeat_interleave(sizes).to(self._device)
        self._positions = positions[stored].to(self._device)
        for index, row in zip(order, stored_rows, strict=True):
            self.lengths[row] = ends[index]
        return positions[None].to(self._device)

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None
    ) -> torch.Tensor:
        """Store the new `key` and `value` [H, N, D]; causal attention of `query` [H * G, N, D] over each token's own row.

        Returns:
            [N, H * G, D]
        """
        for buffers, new in ((self._keys, key), (self._values, value)):
            if layer in buffers:
                buffers[layer] = self._fitted(buffers[layer])
            else:
                buffers[layer] = _zeros(new, (len(self.lengths), new.shape[0], self._room, new.shape[2]))
            made = new.transpose(0, 1)
            buffers[layer][self._token_rows, :, self._positions] = made if self._stored is None else made[self._stored]
        seen = [block.attend(query, self._keys[layer], self._values[layer], scale) for block in self._blocks]
        return seen[0] if len(seen) == 1 else torch.cat(seen)

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` positions of a row to another, whose only ones they are."""
        for buffers in (self._keys, self._values):
            for layer, buffer in buffers.items():
                buffers[layer] = buffer = self._fitted(buffer)  # it may lack a row that was just taken
                buffer[target, :, :length] = buffer[source, :, :length]
        self.lengths[target] = length

    def swap(self, one: Sequence[int], other: Sequence[int]) -> None:
        """Swap rows pairwise; none may appear twice."""
        before, after = [*one, *other], [*other, *one]
        lengths = [self.lengths[row] for row in after]
        longest = max(lengths)
        to, source = (torch.tensor(rows, device=self._device) for rows in (before, after))
        for buffers in (self._keys, self._values):
            for layer, buffer in buffers.items():
                buffers[layer] = buffer = self._fitted(buffer)  # it may lack a row that was just taken
                buffer[to, :, :longest] = buffer[source, :, :longest]
        for row, length in zip(before, lengths, strict=True):
            self.lengths[row] = length
        moved = dict(zip(before, after, strict=True))
        self._free = [moved.get(row, row) for row in self._free]
        heapq.heapify(self._free)

    def _reserve(self, positions: int) -> None:
        """Make room for so many positions, and drop free rows at the end whenever the buffers grow."""
        if positions <= self._room:
            return
        doubled = max(SMALLEST, 2 * self._room, positions)
        self._room = max(positions, min(doubled, self._longest or doubled))
        free = set(self._free)
        while len(self.lengths) - 1 in free:
            free.remove(len(self.lengths) - 1)
            self.lengths.pop()
        self._free = sorted(free)

    def _fitted(self, buffer: torch.Tensor) -> torch.Tensor:
        """The buffer with room for all rows and positions."""
        (old_rows, heads, old_room, dim), rows = buffer.shape, len(self.lengths)
        if old_rows >= rows and old_room >= self._room:
            return buffer
        if old_rows < rows:
            rows = max(rows, 2 * old_rows)
        bigger = _zeros(buffer, (rows, heads, self._room, dim))
        kept, used = min(rows, old_rows), min(old_room, max(self.lengths))
        bigger[:kept, :, :used] = buffer[:kept, :, :used]
        return bigger


def _zeros(like: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Zeros, because masked values are multiplied by 0. A CPU's come from the system page by page, as they are written."""
    if like.device.type != "cpu":
        return like.new_zeros(shape)
    pages = numpy.zeros(math.prod(shape) * like.dtype.itemsize, dtype=numpy.uint8)
    return torch.from_numpy(pages).view(like.dtype).view(shape)


NAME = "tracewheel_ragged"


def use_ragged_attention(model: Any) -> None:
    """Let a model of transformers take a cache as `ragged`.

    Raises:
        InputError: the model does not let its attention be replaced.
    """
    AttentionInterface.register(NAME, ragged_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
    if model.config.get_text_config()._attn_implementation != NAME:
        raise InputError(
            f"{type(model).__name__} does not let its attention be replaced, which the engine needs: use another base"
        )


def ragged_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    ragged: RaggedCache | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Called by transformers: `query` [1, heads, N, D], `key` and `value` [1, H, N, D]; returns [1, N, heads, D]."""
    if ragged is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    return ragged.attend(module.layer_idx, query[0], key[0], value[0], options.get("scaling"))[None], None
