"""The mismatch between sampler and trainer: log-probabilities that should be the same."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tracewheel.learner.batch import Batch

if TYPE_CHECKING:
    from tracewheel.learner.rows import Rows

MEAN, MAX, MEASURED = "sampler_mismatch_mean", "sampler_mismatch_max", "sampler_mismatch_measured"


class Differences:
    """How far fresh log-probabilities are from the stored ones, in nats, on tokens of the policy that is updated."""

    def __init__(self) -> None:
        self._sum, self._max, self._tokens, self._actions = 0.0, 0.0, 0, 0

    def __add__(self, other: Differences) -> Differences:
        both = Differences()
        both._sum, both._max = self._sum + other._sum, _larger(self._max, other._max)
        both._tokens, both._actions = self._tokens + other._tokens, self._actions + other._actions
        return both

    def see(self, logprobs: Tensor, stored: Tensor, mask: Tensor, current: Tensor) -> None:
        """Take in some tokens.

        Args:
            logprobs, stored: Any shape: what the trainer says, and what the sampler said.
            mask: The same shape; 1 where a policy sampled the token.
            current: The same shape; 1 where the policy that is updated did, before the first step.
        """
        acted = mask.bool()
        gaps = (logprobs - stored).abs()[acted & current.bool()]
        self._actions += int(acted.sum())
        if len(gaps):
            self._sum += gaps.double().sum().item()
            self._max = _larger(self._max, gaps.max().item())
            self._tokens += len(gaps)

    def see_batch(self, logprobs: Tensor, batch: Batch, current: Tensor) -> None:
        """Take in a batch [B, T]."""
        self.see(logprobs, batch.behaviour_logprobs, batch.action_mask, current)

    def figures(self) -> dict[str, float]:
        """Mean and largest difference, and the share of the action tokens that could be compared.

        With none to compare there is no difference: it is not 0.
        """
        share = {MEASURED: self._tokens / max(self._actions, 1)}
        return {MEAN: self._sum / self._tokens, MAX: self._max, **share} if self._tokens else share


def differences_of(rows: Rows) -> Differences:
    """The differences over all rows, which have `proximal` and `current`; every process finds the same."""
    found = Differences()
    columns = zip(rows.table["logprobs"], rows.table["action_mask"], rows.extra["proximal"], rows.extra["current"], strict=True)
    for logprobs, mask, proximal, current in columns:
        if len(proximal):  # a row without an action has had no pass
            stored = torch.tensor(list(logprobs), dtype=torch.float32)
            found.see(proximal[: len(stored)], stored, torch.tensor(list(mask)), current)
    return found


def _larger(one: float, other: float) -> float:
    """The larger of two; NaN when one of them is, which `max` would lose."""
    return one + other if math.isnan(one + other) else max(one, other)
