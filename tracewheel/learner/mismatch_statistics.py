"""The mismatch between sampler and trainer: how far apart their log-probabilities of the same tokens are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tracewheel.learner.batch import Batch
from tracewheel.learner.trajectory_table import TrajectoryTable

MEAN, MAX, MEASURED = "sampler_mismatch_mean", "sampler_mismatch_max", "sampler_mismatch_measured"


@dataclass
class MismatchStatistics:
    """Differences of fresh and stored log-probabilities, in nats, on tokens that the updated policy sampled.

    `total` and `largest` are over `measured` tokens, out of `actions` action tokens. Statistics of processes add up.
    """

    total: float = 0.0
    largest: float = 0.0
    measured: int = 0
    actions: int = 0

    def __add__(self, other: MismatchStatistics) -> MismatchStatistics:
        return MismatchStatistics(
            self.total + other.total,
            _larger(self.largest, other.largest),
            self.measured + other.measured,
            self.actions + other.actions,
        )

    def observe(self, logprobs: Tensor, stored: Tensor, mask: Tensor, current: Tensor) -> None:
        """Add tokens.

        Args:
            logprobs, stored: Any shape; the trainer's and the sampler's log-probabilities.
            mask: The same shape; 1 where a policy sampled the token.
            current: The same shape; 1 where the updated policy, as it was before the first step, sampled it.
        """
        acted = mask.bool()
        gaps = (logprobs - stored).abs()[acted & current.bool()]
        self.actions += int(acted.sum())
        if len(gaps):
            self.total += gaps.double().sum().item()
            self.largest = _larger(self.largest, gaps.max().item())
            self.measured += len(gaps)

    def observe_batch(self, logprobs: Tensor, batch: Batch, current: Tensor) -> None:
        """Add a batch [B, T]."""
        self.observe(logprobs, batch.behaviour_logprobs, batch.action_mask, current)

    def figures(self) -> dict[str, float]:
        """Mean and largest difference, and the share of action tokens compared; that share alone when it is 0."""
        share = {MEASURED: self.measured / max(self.actions, 1)}
        return {MEAN: self.total / self.measured, MAX: self.largest, **share} if self.measured else share


def mismatch_of(table: TrajectoryTable) -> MismatchStatistics:
    """The statistics of all rows, which have `proximal` and `current`; every process gets the same."""
    found = MismatchStatistics()
    columns = zip(
        table.frame["logprobs"],
        table.frame["action_mask"],
        table.per_token["proximal"],
        table.per_token["current"],
        strict=True,
    )
    for logprobs, mask, proximal, current in columns:
        if len(proximal):  # a row without actions was in no pass
            stored = torch.tensor(list(logprobs), dtype=torch.float32)
            found.observe(proximal[: len(stored)], stored, torch.tensor(list(mask)), current)
    return found


def _larger(one: float, other: float) -> float:
    """The larger of two; NaN when one of them is, which `max` would lose."""
    return one + other if math.isnan(one + other) else max(one, other)
