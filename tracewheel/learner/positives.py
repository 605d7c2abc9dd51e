"""The successes among the rows of an optimiser step, for the loss on positive examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tracewheel.learner.batch import Batch
from tracewheel.learner.scored_trajectories import succeeded

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Positives:
    """Which of the step's N rows are successes [N], and how many action tokens these have."""

    rows: Tensor
    tokens: int

    @classmethod
    def of(cls, trajectories: pd.DataFrame, batches: Sequence[Batch]) -> Positives:
        """Those of the rows that a step's batches, on all processes, were cut from."""
        found = cls(torch.from_numpy(succeeded(trajectories)), 0)
        return cls(found.rows, sum(int(batch.action_mask[found.flags(batch)].sum()) for batch in batches))

    def flags(self, batch: Batch) -> Tensor:
        """Which rows of a batch are successes [B]; rows of padding, at position -1, are none."""
        flags = self.rows.to(batch.rows.device)[batch.rows.clamp(min=0)]
        return flags & (batch.rows >= 0)
