"""The trajectories of an update, with the tensors computed for their tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from tracewheel.learner.batch import Batch, micro_batches
from tracewheel.learner.kernels.packing import Layout
from tracewheel.learner.per_token import compute_per_token

if TYPE_CHECKING:
    import pandas as pd

    from tracewheel.learner.backends.backend import Backend


@dataclass(frozen=True)
class TrajectoryTable:
    """One trajectory per row of `frame`; `per_token` holds, by name, one tensor [T] per row."""

    frame: pd.DataFrame
    per_token: dict[str, list[Tensor]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.frame)

    def take(self, positions: Sequence[int] | np.ndarray) -> TrajectoryTable:
        """The rows at these positions."""
        chosen = [int(position) for position in positions]
        per_token = {name: [values[position] for position in chosen] for name, values in self.per_token.items()}
        return TrajectoryTable(self.frame.iloc[chosen], per_token)

    def with_per_token(self, name: str, values: list[Tensor]) -> TrajectoryTable:
        """The same rows with one more tensor each."""
        return TrajectoryTable(self.frame, {**self.per_token, name: values})

    def without_per_token(self, name: str) -> TrajectoryTable:
        """The same rows without the tensors of that name."""
        return TrajectoryTable(self.frame, {other: values for other, values in self.per_token.items() if other != name})

    def with_pass(
        self, name: str, backend: Backend, batches: list[Batch], values: Callable[[Batch], Tensor]
    ) -> TrajectoryTable:
        """The same rows with the result of running `values` over all their batches."""
        return self.with_per_token(name, compute_per_token(backend, batches, values, len(self)))

    def batches(
        self,
        cap: int,
        device: str,
        advantages: Sequence[float] | Sequence[Sequence[float]] | None = None,
        layout: Layout = "padded",
    ) -> list[Batch]:
        """The rows as micro-batches of at most `cap` tokens, cut for a layout."""
        given = [0.0] * len(self) if advantages is None else advantages
        return [batch.to(device) for batch in micro_batches(self.frame, given, cap, layout=layout)]
