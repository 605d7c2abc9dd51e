"""The mismatch between sampler and trainer: log-probabilities that should be the same."""

from __future__ import annotations

import math

from torch import Tensor

from tracewheel.batch import Batch


class Differences:
    """How far fresh log-probabilities of a batch's action tokens are from the stored ones, in nats."""

    def __init__(self) -> None:
        self._sum, self._max, self._tokens = 0.0, 0.0, 0

    def __add__(self, other: Differences) -> Differences:
        both = Differences()
        both._sum, both._max = self._sum + other._sum, _larger(self._max, other._max)
        both._tokens = self._tokens + other._tokens
        return both

    def see(self, logprobs: Tensor, batch: Batch) -> None:
        gaps = (logprobs - batch.behaviour_logprobs).abs()[batch.action_mask.bool()]
        if len(gaps):
            self._sum += gaps.sum().item()
            self._max = _larger(self._max, gaps.max().item())
            self._tokens += len(gaps)

    def figures(self) -> dict[str, float]:
        return {"sampler_mismatch_mean": self._sum / max(self._tokens, 1), "sampler_mismatch_max": self._max}


def _larger(one: float, other: float) -> float:
    """The larger of two; NaN when one of them is, which `max` would lose."""
    return one + other if math.isnan(one + other) else max(one, other)
