"""The mismatch between sampler and trainer: how far apart their log-probabilities of the same tokens are."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tracewheel.learner.batch import Batch
from tracewheel.learner.losses.bounds import bounded
from tracewheel.learner.trajectory_table import TrajectoryTable

MEAN, MAX, TRIMMED, SAMPLE, MEASURED = (
    f"sampler_mismatch_{name}" for name in ("mean", "max", "trimmed", "effective_sample", "measured")
)
TRIM = 0.01


@dataclass
class MismatchStatistics:
    """Differences of fresh and stored log-probabilities, in nats, on tokens that the updated policy sampled.

    `log_ratios` holds trainer less sampler, on `actions` action tokens or fewer. Statistics of processes add up.
    """

    log_ratios: list[Tensor] = field(default_factory=list)
    actions: int = 0

    def __add__(self, other: MismatchStatistics) -> MismatchStatistics:
        return MismatchStatistics(self.log_ratios + other.log_ratios, self.actions + other.actions)

    def observe(self, logprobs: Tensor, stored: Tensor, mask: Tensor, current: Tensor) -> None:
        """Add tokens.

        Args:
            logprobs, stored: Any shape; the trainer's and the sampler's log-probabilities.
            mask: The same shape; 1 where a policy sampled the token.
            current: The same shape; 1 where the updated policy, as it was before the first step, sampled it.
        """
        acted = mask.bool()
        self.actions += int(acted.sum())
        self.log_ratios.append((logprobs - stored)[acted & current.bool()].float().cpu())

    def observe_batch(self, logprobs: Tensor, batch: Batch, current: Tensor) -> None:
        """Add a batch [B, T]."""
        self.observe(logprobs, batch.behaviour_logprobs, batch.action_mask, current)

    def figures(self) -> dict[str, float]:
        """The figures of the tokens compared, and their share of the action tokens; that share alone when it is 0.

        `mean` and `max` are of the absolute differences. `trimmed` is their mean without the largest 1%, at least one
        token: a single token cannot move it. `effective_sample` is (sum w)^2 / (n sum w^2) of the tokens' ratios w, trainer
        over sampler (Kish 1965): the share of the tokens that would say as much without the mismatch.
        """
        log_ratios = torch.cat([torch.zeros(0), *self.log_ratios]).double()
        measured = len(log_ratios)
        share = {MEASURED: measured / max(self.actions, 1)}
        if not measured:
            return share
        gaps = log_ratios.abs().sort().values  # NaN is last
        kept = gaps[: max(1, measured - max(1, math.ceil(TRIM * measured)))]
        weights = bounded(log_ratios).exp()
        return {
            MEAN: gaps.mean().item(),
            MAX: gaps[-1].item(),
            TRIMMED: kept.mean().item(),
            SAMPLE: (weights.sum().square() / (measured * weights.square().sum())).item(),
            **share,
        }


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
