"""Packing: the tokens of a batch in one row without padding.

The row consists of segments. A segment attends to itself, causally, and to whole segments before it. Without sharing,
each trajectory is one segment and attends to no other. With shared beginnings the trajectories form a tree: each
node is a segment that attends to its ancestors. A token keeps its position in its row, so the model computes for it
what it would compute for the row alone. A trajectory with forks is a tree by itself: the stretch after a fork attends to
the part of the earlier ones that its row holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tracewheel.core.forks import ancestry, positions, rows, segments

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


class AttentionPlan:
    """What attention needs of a packed row, worked out once a pass: every layer reads it.

    Attributes:
        segments: Of the row.
        ends, seen_ends: [S + 1], int32: where each segment's queries end, and its keys in `order`, with a 0 before them.
        longest, longest_seen: The most queries and keys of a segment.
        order: [K], the positions in N of the keys of each segment, one segment after the other; None: as they lie.
    """

    def __init__(self, segments: tuple[Segment, ...], device: torch.device) -> None:
        self.segments = segments
        lengths, seen = [part.length for part in segments], [part.seen_length for part in segments]
        self.longest, self.longest_seen = max(lengths), max(seen)
        self.ends, self.seen_ends = (
            torch.tensor([0, *accumulate(sizes)], dtype=torch.int32, device=device) for sizes in (lengths, seen)
        )
        self.order: Tensor | None = None
        if any(part.seen for part in segments):
            ranges = [place for part in segments for place in (*part.seen, (part.start, part.stop))]
            self.order = torch.cat([torch.arange(*place) for place in ranges]).to(device)


@dataclass(frozen=True)
class Packed:
    """`token_ids` and `position_ids` [1, N]; `index` [B, T] is the position in N of each token (0 for padding)."""

    token_ids: Tensor
    position_ids: Tensor
    index: Tensor
    plan: AttentionPlan

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Of the row."""
        return self.plan.segments


def pack(token_ids: Tensor, attention_mask: Tensor, before: Tensor | None = None, *, share_prefixes: bool) -> Packed:
    """Plan the packed row of a batch that is padded on the right.

    Args:
        token_ids: [B, T].
        attention_mask: [B, T], 1 on real tokens.
        before: [B, T], the index of the token that each one follows; None: the one before it.
        share_prefixes: whether equal beginnings of rows are computed once.
    """
    trees = _trees(token_ids, attention_mask, before)
    planned = _shared(trees) if share_prefixes else _apart(trees)
    tokens: list[int] = []
    places: list[int] = []
    parts: list[Segment] = []
    index = torch.zeros(token_ids.shape, dtype=torch.long)
    for part in planned:
        start = len(tokens)
        tokens += part.tokens
        places += range(part.position, part.position + len(part.tokens))
        parts.append(Segment(start, len(tokens), part.seen))
        for number, flat in part.indices:
            index[number, flat] = torch.arange(start, len(tokens))
    if not tokens:  # a body needs one token to run on
        tokens, places, parts = [0], [0], [Segment(0, 1)]
    device = token_ids.device
    plan = AttentionPlan(tuple(parts), device)
    return Packed(torch.tensor([tokens], device=device), torch.tensor([places], device=device), index.to(device), plan)


def rows_at(hidden: Tensor, places: Tensor) -> Tensor:
    """Rows of `hidden` [N, H] at places [...], as `hidden[places]`, with a gradient that has the same bits each time.

    Rows of a shared prefix are taken many times. Several threads add up the gradient of an index in an order of chance and
    that of an embedding in the order of the places.
    """
    return nn.functional.embedding(places, hidden)


def pad_rows(token_ids: Tensor, attention_mask: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The rows of a batch, padded on the right: ids [R, S], mask [R, S], and each token's [B, T] position in R * S.

    Without forks these are the batch's own, R = B and S = T. A token of several rows is found in the first of them.
    """
    if before is None:
        return token_ids, attention_mask, torch.arange(token_ids.numel(), device=token_ids.device).view(token_ids.shape)
    trees = _trees(token_ids, attention_mask, before)
    found = [(number, row) for number, tree in enumerate(trees) for row in rows(tree.forks, len(tree.ids)) or [[]]]
    width = max(1, *(len(row) for _, row in found))
    ids, mask = (torch.zeros(len(found), width, dtype=token_ids.dtype) for _ in range(2))
    index = torch.zeros(token_ids.shape, dtype=torch.long)
    for place in range(len(found) - 1, -1, -1):  # backwards, so that the first row of a token is written last
        number, row = found[place]
        ids[place, : len(row)] = torch.tensor([trees[number].ids[flat] for flat in row])
        mask[place, : len(row)] = 1
        index[number, row] = torch.arange(len(row)) + place * width
    device = token_ids.device
    return ids.to(device), mask.to(device), index.to(device)


@dataclass(frozen=True)
class _Tree:
    """A trajectory: its ids in flat order, and its forks."""

    ids: list[int]
    forks: list[list[int]]


@dataclass(frozen=True)
class _Part:
    """A segment to be: its tokens, the first one's position, what it attends to, and the trajectories' tokens it is."""

    tokens: list[int]
    position: int
    seen: tuple[tuple[int, int], ...]
    indices: list[tuple[int, list[int] | slice]]


def _trees(token_ids: Tensor, attention_mask: Tensor, before: Tensor | None) -> list[_Tree]:
    lengths = attention_mask.sum(-1).tolist()
    all_ids = [ids[:length] for ids, length in zip(token_ids.tolist(), lengths, strict=True)]
    if before is None:
        return [_Tree(ids, []) for ids in all_ids]
    before = before.cpu()  # once, not at each place where it is looked at
    forked = before != torch.arange(-1, before.shape[1] - 1)
    starts = [row.nonzero().flatten().tolist() for row in forked]
    return [
        _Tree(ids, [[start, int(row[start])] for start in where if start < len(ids)])
        for ids, where, row in zip(all_ids, starts, before, strict=True)
    ]


def _apart(trees: list[_Tree]) -> Iterator[_Part]:
    """The stretches of each trajectory."""
    offset = 0
    for number, tree in enumerate(trees):
        length = len(tree.ids)
        places = positions(tree.forks, length) if tree.forks else [0]
        for start, stop, after in segments(tree.forks, length):
            seen = tuple((offset + first, offset + last) for first, last in ancestry(tree.forks, length, after))
            yield _Part(tree.ids[start:stop], places[start], seen, [(number, slice(start, stop))])
        offset += length


def _shared(trees: list[_Tree]) -> Iterator[_Part]:
    """The nodes of the tree of common beginnings of all rows."""
    owned = [(number, row) for number, tree in enumerate(trees) for row in rows(tree.forks, len(tree.ids))]
    spelled = [[trees[number].ids[flat] for flat in row] for number, row in owned]
    placed: dict[Node, tuple[int, int]] = {}
    start = 0
    for node in prefix_tree(spelled):
        tokens = spelled[node.rows[0]][node.start : node.stop]
        placed[node] = (start, start + len(tokens))
        start += len(tokens)
        indices: list[tuple[int, list[int] | slice]] = [
            (owned[row][0], owned[row][1][node.start : node.stop]) for row in node.rows
        ]
        yield _Part(tokens, node.start, tuple(placed[above] for above in node.above), indices)


def packed_hidden(
    body: Any, token_ids: Tensor, attention_mask: Tensor, share_prefixes: bool, before: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Hidden states [N, H] of the packed row, and the position in N of each token of the batch [B, T]; see `pack`."""
    packed = pack(token_ids, attention_mask, before, share_prefixes=share_prefixes)
    # Transformers passes a four-dimensional mask on and builds none of [N, N]; our attention never reads it.
    unread = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=token_ids.device)
    output = body(
        input_ids=packed.token_ids,
        position_ids=packed.position_ids,
        attention_mask=unread,
        plan=packed.plan,
        use_cache=False,
    )
    return output.last_hidden_state[0], packed.index


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
