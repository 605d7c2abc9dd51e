"""The rows an update works on, with what was computed for each of their tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from tracewheel.learner.batch import Batch, micro_batches
from tracewheel.learner.kernels.packing import Layout
from tracewheel.learner.per_token import collect

if TYPE_CHECKING:
    import pandas as pd

    from tracewheel.learner.backend import Backend


@dataclass(frozen=True)
class Rows:
    """A table of trajectories; `extra` holds, by name, a tensor [T] for each row."""

    table: pd.DataFrame
    extra: dict[str, list[Tensor]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.table)

    def take(self, positions: Sequence[int] | np.ndarray) -> Rows:
        """The rows at these positions."""
        chosen = [int(position) for position in positions]
        extra = {name: [values[position] for position in chosen] for name, values in self.extra.items()}
        return Rows(self.table.iloc[chosen], extra)

    def batches(
        self,
        cap: int,
        device: str,
        advantages: Sequence[float] | Sequence[Sequence[float]] | None = None,
        layout: Layout = "padded",
    ) -> list[Batch]:
        """The rows as micro-batches of at most `cap` tokens, cut for a layout."""
        given = [0.0] * len(self) if advantages is None else advantages
        return [batch.to(device) for batch in micro_batches(self.table, given, cap, layout=layout)]

    def with_pass(self, name: str, backend: Backend, batches: list[Batch], values: Callable[[Batch], Tensor]) -> Rows:
        """The same rows with what `values` says of their tokens."""
        return Rows(self.table, {**self.extra, name: collect(backend, batches, values, len(self))})
