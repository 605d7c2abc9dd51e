"""Where the tokens of a batch lie when they are computed in one row without padding.

The row is cut into segments. A segment sees itself, causally, and whole segments before it: nothing
else when every trajectory is a segment of its own; when beginnings are shared, the trajectories form
a tree, whose nodes are segments that see the nodes above them. A token keeps the position that it has
in its trajectory, so what the model computes for it is what it computes for the trajectory alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor

Layout = Literal["padded", "packed", "shared_prefix"]

# A node costs a pass of attention of its own: shorter common beginnings are computed again instead.
SHORTEST_SHARED = 8


@dataclass(frozen=True)
class Segment:
    """Positions `start` to `stop` of the packed row, and those of the segments it sees, in order."""

    start: int
    stop: int
    seen: tuple[tuple[int, int], ...] = ()

    @property
    def length(self) -> int:
        return self.stop - self.start

    @property
    def seen_length(self) -> int:
        """Tokens that the segment's last token sees, itself included."""
        return self.length + sum(stop - start for start, stop in self.seen)


@dataclass(frozen=True)
class Packed:
    """`token_ids` and `position_ids` [1, N]; `index` [B, T] says where in N each token lies (0 for padding)."""

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
    nodes = shared(rows) if share_prefixes else (Node((number,), 0, len(row), ()) for number, row in enumerate(rows) if row)
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
    """Tokens `start` to `stop` of the trajectories `rows`, which are the same in all of them; `above` from the root."""

    rows: tuple[int, ...]
    start: int
    stop: int
    above: tuple[Node, ...]


def shared(rows: list[list[int]]) -> Iterator[Node]:
    """The tree of the rows' common beginnings, each node before those below it."""
    order = sorted((number for number, row in enumerate(rows) if row), key=lambda number: rows[number])
    yield from _grow(rows, order, 0, ())


def _grow(rows: list[list[int]], order: list[int], start: int, above: tuple[Node, ...]) -> Iterator[Node]:
    """`order` holds rows that agree up to `start` at least, sorted, so its ends say how far they all agree."""
    if not order:
        return
    stop = common_length(rows[order[0]], rows[order[-1]], start)
    longer = [number for number in order if len(rows[number]) > stop]
    if stop - start >= SHORTEST_SHARED or not longer or len(order) == 1:
        node = Node(tuple(order), start, stop, above)
        yield node
        start, above = stop, (*above, node)
    elif len(longer) < len(order):
        # Rows that end within a beginning too short to share: they are computed apart from the longer ones.
        yield Node(tuple(number for number in order if len(rows[number]) == stop), start, stop, above)
    for _, below in groupby(longer, key=lambda number: rows[number][stop]):
        yield from _grow(rows, list(below), start, above)


def common_length(first: Sequence[int], second: Sequence[int], start: int = 0) -> int:
    """How many tokens two rows have in common from the beginning; they agree up to `start`."""
    end = min(len(first), len(second))
    length = start
    while length < end and first[length] == second[length]:
        length += 1
    return length
