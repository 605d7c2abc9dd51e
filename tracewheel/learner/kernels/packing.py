"""Packing: the tokens of a batch in one row without padding.

The row consists of segments. A segment attends to itself, causally, and to whole segments before it. Without sharing,
each trajectory is one segment and attends to no other. With shared beginnings the trajectories form a tree: each
node is a segment that attends to its ancestors. A token keeps its position in its trajectory, so the model computes
for it what it would compute for the trajectory alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor

Layout = Literal["padded", "packed", "shared_prefix"]

# A node costs an attention call of its own: shorter common beginnings are computed repeatedly instead.
SHORTEST_SHARED = 8


@dataclass(frozen=True)
class Segment:
    """Positions `start` to `stop` of the packed row, and the ranges of the segments it attends to, in order."""

    start: int
    stop: int
    seen: tuple[tuple[int, int], ...] = ()

    @property
    def length(self) -> int:
        return self.stop - self.start

    @property
    def seen_length(self) -> int:
        """Tokens that the segment's last token attends to, itself included."""
        return self.length + sum(stop - start for start, stop in self.seen)


@dataclass(frozen=True)
class Packed:
    """`token_ids` and `position_ids` [1, N]; `index` [B, T] is the position in N of each token (0 for padding)."""

    token_ids: Tensor
    position_ids: Tensor
    index: Tensor
    segments: tuple[Segment, ...]


def pack(token_ids: Tensor, attention_mask: Tensor, *, share_prefixes: bool) -> Packed:
    """Plan the packed row of a batch that is padded on the right.

    Args:
        token_ids: [B, T].
        attention_mask: [B, T], 1 on real tokens.
        share_prefixes: whether equal beginnings of trajectories are computed once.
    """
    lengths = attention_mask.sum(-1).tolist()
    rows = [ids[:length] for ids, length in zip(token_ids.tolist(), lengths, strict=True)]
    tokens: list[int] = []
    positions: list[int] = []
    segments: list[Segment] = []
    index = torch.zeros(token_ids.shape, dtype=torch.long)
    nodes = (
        prefix_tree(rows) if share_prefixes else (Node((number,), 0, len(row), ()) for number, row in enumerate(rows) if row)
    )
    placed: dict[Node, tuple[int, int]] = {}
    for node in nodes:
        start = len(tokens)
        tokens += rows[node.rows[0]][node.start : node.stop]
        positions += range(node.start, node.stop)
        placed[node] = (start, len(tokens))
        segments.append(Segment(start, len(tokens), tuple(placed[above] for above in node.above)))
        for row in node.rows:
            index[row, node.start : node.stop] = torch.arange(start, len(tokens))
    if not tokens:  # a body needs one token to run on
        tokens, positions, segments = [0], [0], [Segment(0, 1)]
    device = token_ids.device
    return Packed(
        torch.tensor([tokens], device=device), torch.tensor([positions], device=device), index.to(device), tuple(segments)
    )


@dataclass(frozen=True)
class Node:
    """Tokens `start` to `stop`, common to the trajectories `rows`; `above` are the ancestors, from the root."""

    rows: tuple[int, ...]
    start: int
    stop: int
    above: tuple[Node, ...]


def prefix_tree(rows: list[list[int]]) -> Iterator[Node]:
    """The nodes of the tree of common beginnings, parents first."""
    order = sorted((number for number, row in enumerate(rows) if row), key=lambda number: rows[number])
    yield from _grow(rows, order, 0, ())


def _grow(rows: list[list[int]], order: list[int], start: int, above: tuple[Node, ...]) -> Iterator[Node]:
    """`order` are sorted rows that agree up to `start`; comparing its first and last shows how far all agree."""
    if not order:
        return
    stop = common_length(rows[order[0]], rows[order[-1]], start)
    longer = [number for number in order if len(rows[number]) > stop]
    if stop - start >= SHORTEST_SHARED or not longer or len(order) == 1:
        node = Node(tuple(order), start, stop, above)
        yield node
        start, above = stop, (*above, node)
    elif len(longer) < len(order):
        # Rows that end within a beginning too short to share are computed separately from the longer ones.
        yield Node(tuple(number for number in order if len(rows[number]) == stop), start, stop, above)
    for _, below in groupby(longer, key=lambda number: rows[number][stop]):
        yield from _grow(rows, list(below), start, above)


def common_length(first: Sequence[int], second: Sequence[int], start: int = 0) -> int:
    """The length of the common beginning of two rows that agree up to `start`."""
    end = min(len(first), len(second))
    length = start
    while length < end and first[length] == second[length]:
        length += 1
    return length
