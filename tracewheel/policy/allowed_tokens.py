"""Masks of tokens as bits, and logits under them.

A token that is not allowed gets a logit so low that its probability is exactly 0. The logit is finite, because sums over the
vocabulary multiply it with that probability.

Legend: M masks, W words of 32 bits, R rows, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

NEVER = -1e30
WORD = 32


def forbidden(masks: Tensor, columns: slice) -> Tensor:
    """Which tokens of `columns` [C] each of `masks` [M, W], int32, forbids: [M, C]. Tokens beyond its words are forbidden."""
    first, last = columns.start // WORD, -(-columns.stop // WORD)
    words = masks[:, first:last]
    bits = words.unsqueeze(-1) >> torch.arange(WORD, dtype=torch.int32, device=masks.device) & 1 == 0
    found = bits.flatten(1)[:, columns.start - first * WORD :]
    missing = columns.stop - columns.start - found.shape[1]
    return torch.nn.functional.pad(found, (0, missing), value=True) if missing > 0 else found[:, : columns.stop - columns.start]


def with_masks(logits: Tensor, rows: Sequence[int], masks: Tensor) -> Tensor:
    """Logits [R, V] of which some rows may choose only among the tokens that their masks [M, W] allow."""
    numbers = torch.tensor(rows, device=logits.device)
    hidden = forbidden(masks.to(logits.device), slice(0, logits.shape[1]))
    return logits.index_copy(0, numbers, logits[numbers].masked_fill(hidden, NEVER))
