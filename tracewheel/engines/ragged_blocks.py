"""Attention of a pass in blocks of rows that get about equally many tokens.

A block reads the buffers in place where its rows lie close together, and otherwise a copy of its rows. Rows in between
are computed too, and dropped from the result.

Legend: R rows of a block, S buffer rows that it reads, W its widest chunk, L its longest row, H key-value heads, G query
heads that share one, D head dimension.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

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
