"""Micro-batches divided over processes, the same number on each.

Processes that gather and reduce together must make the same number of passes: one more on one of them, and all
wait for ever. If the batches do not divide evenly, the fullest ones are halved, and missing ones are filled with
batches of two tokens that no loss counts.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from tracewheel.learner.batch import Batch


def shard_batches(batches: list[Batch], world_size: int) -> list[list[Batch]]:
    """The batches of each process, by rank; all get the same number.

    Each row goes to exactly one process. Fillers have no action token and -1 for the position of their row.
    """
    if not batches:
        return [[] for _ in range(world_size)]
    even = _evened(batches, world_size)
    even += [_filler(even[-1])] * (-len(even) % world_size)
    return [even[number::world_size] for number in range(world_size)]


def _evened(batches: list[Batch], world_size: int) -> list[Batch]:
    even = list(batches)
    while len(even) % world_size:
        fullest = max(range(len(even)), key=lambda number: even[number].token_ids.numel() * (len(even[number].rows) > 1))
        if len(even[fullest].rows) == 1:
            break
        half = (len(even[fullest].rows) + 1) // 2
        even[fullest : fullest + 1] = [_rows(even[fullest], slice(0, half)), _rows(even[fullest], slice(half, None))]
    # Longest first, so that simultaneous passes are of similar length.
    return sorted(even, key=lambda batch: -batch.token_ids.numel())


def _rows(batch: Batch, part: slice) -> Batch:
    """Some rows of a batch, without the padding that none of them needs."""
    return _cut(batch, part, int(batch.attention_mask[part].sum(1).max()))


def _cut(batch: Batch, rows: slice, length: int) -> Batch:
    values = {name: tensor[rows] for name, tensor in batch.tensors().items()}
    return Batch(**{name: tensor[:, :length] if tensor.dim() == 2 else tensor for name, tensor in values.items()})


def _filler(like: Batch) -> Batch:
    short = _cut(like, slice(0, 1), 2)
    return replace(
        short,
        before=None,
        attention_mask=torch.ones_like(short.attention_mask),
        action_mask=torch.zeros_like(short.action_mask),
        behaviour_logprobs=torch.zeros_like(short.behaviour_logprobs),
        advantages=torch.zeros_like(short.advantages),
        turns=torch.full_like(short.turns, -1),
        rows=torch.full_like(short.rows, -1),
    )
