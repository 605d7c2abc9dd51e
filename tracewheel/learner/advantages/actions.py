"""The actions of a batch, observations skipped, and recurrences along them. B rows, T tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Actions:
    """The actions of B rows, each at one position of [B, T]: a token, or a turn at its first token.

    `here` [B, T] marks the positions of the actions. `rewards` and `values` belong to the actions and are
    0 elsewhere. `discount` and `trace` are gamma and lambda from an action to the next one of the row: 0 at the last
    action, and 1 off the actions, so that a recurrence skips observations.
    """

    here: Tensor
    rewards: Tensor
    values: Tensor
    discount: Tensor
    trace: Tensor

    def following(self, values: Tensor) -> Tensor:
        """`values` [B, T] at the next action of each action, 0 at the last one and where there is no action."""
        length = self.here.shape[1]
        positions = torch.arange(length, device=self.here.device).expand_as(self.here)
        at_or_after = positions.masked_fill(~self.here, length).flip(1).cummin(1).values.flip(1)
        end = torch.full_like(at_or_after[:, :1], length)
        after = torch.cat([at_or_after[:, 1:], end], 1)
        padded = torch.cat([values, torch.zeros_like(values[:, :1])], 1)
        return padded.gather(1, after).masked_fill(~self.here, 0.0)


def discounted_sums(terms: Tensor, factors: Tensor) -> Tensor:
    """x_t = terms_t + factors_t x_(t+1) along the last dimension of [B, T], with x_T = 0.

    By doubling, in log2(T) steps over whole tensors instead of T small ones: after a step of size s, `terms` holds
    the sum of 2s terms and `factors` the product of 2s factors. Near the end, where fewer terms follow, the sum is
    complete and the factor is not read again. There is no division, so factors near 0 are exact.
    """
    terms, factors, size = terms.clone(), factors.clone(), 1
    while size < terms.shape[-1]:
        terms[..., :-size] = terms[..., :-size] + factors[..., :-size] * terms[..., size:]
        factors[..., :-size] = factors[..., :-size] * factors[..., size:]
        size *= 2
    return terms


def turn_starts(turns: Tensor) -> Tensor:
    """[B, T] bool: the first token of each turn. `turns` [B, T] is -1 off the actions."""
    before = torch.cat([torch.full_like(turns[:, :1], -1), turns[:, :-1]], 1)
    return (turns >= 0) & (turns != before)


def turn_sums(values: Tensor, turns: Tensor) -> Tensor:
    """[B, T]: at every token of a turn, the sum of `values` over the turn's tokens; 0 off the actions."""
    slots = turns.clamp(min=-1) + 1
    width = int(slots.max()) + 1 if slots.numel() else 1
    sums = torch.zeros(len(turns), width, dtype=values.dtype, device=values.device)
    sums.scatter_add_(1, slots, values.masked_fill(turns < 0, 0.0))
    return sums.gather(1, slots).masked_fill(turns < 0, 0.0)


def over_turns(values: Tensor, turns: Tensor) -> Tensor:
    """[B, T]: at every token of a turn, the value at the turn's first token; 0 off the actions."""
    return turn_sums(values.masked_fill(~turn_starts(turns), 0.0), turns)
