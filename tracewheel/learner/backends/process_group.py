"""The base of backends on several processes: exchanges between them, and shares of the work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, distributed

from tracewheel.learner.backends.sharding import shard_batches
from tracewheel.learner.batch import Batch


class ProcessGroup:
    """The part of `Backend` that all backends of several processes share. Values travel between CPUs."""

    def __init__(self) -> None:
        self.rank: int = distributed.get_rank()
        self.world_size: int = distributed.get_world_size()

    def shard(self, batches: list[Batch]) -> list[Batch]:
        """This process's part of the batches, as many as on each other process."""
        return shard_batches(batches, self.world_size)[self.rank]

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, by rank."""
        values: list[Any] = [None] * self.world_size
        distributed.all_gather_object(values, value)
        return values

    def merge(self, per_row: Sequence[Tensor | None]) -> list[Tensor]:
        """Per-row values of all processes, from those that each has computed."""
        own = {number: row for number, row in enumerate(per_row) if row is not None}
        merged: dict[int, Tensor] = {}
        for part in self.gather(own):
            merged |= part
        return [merged[number] for number in range(len(per_row))]

    def total(self, figures: dict[str, float]) -> dict[str, float]:
        """The sum of each figure over the processes."""
        parts = self.gather(figures)
        return {name: sum(part.get(name, 0.0) for part in parts) for name in sorted({name for part in parts for name in part})}
