"""The processes that share an update: which one this is, and what passes between them.

torchrun starts them and says so in the environment. Each reads the same files and draws the same random
numbers, so each knows the whole batch; only the first writes.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tracewheel.core.errors import InfrastructureError

if TYPE_CHECKING:
    from torch import Tensor

    from tracewheel.learner.batch import Batch


def started() -> bool:
    """Whether torchrun has started this process."""
    return "WORLD_SIZE" in os.environ and "RANK" in os.environ


def rank() -> int:
    """The number of this process, from 0."""
    return int(os.environ["RANK"]) if started() else 0


def world_size() -> int:
    """How many processes there are."""
    return int(os.environ["WORLD_SIZE"]) if started() else 1


def is_first() -> bool:
    """Whether this is the process that writes files and prints results."""
    return rank() == 0


def join(device: str, timeout_minutes: float) -> None:
    """Meet the other processes: gloo between CPUs, and NCCL beside it between GPUs.

    Args:
        device: "cpu" or "cuda"; a process takes the GPU of its number on its machine.
        timeout_minutes: How long one waits for another before the update fails.

    Raises:
        InfrastructureError: torchrun has not started this process, or they do not find each other.
    """
    import torch
    from torch import distributed

    if distributed.is_initialized():
        return
    if not started():
        raise InfrastructureError("several processes need torchrun: WORLD_SIZE and RANK are not set")
    if device.startswith("cuda"):
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    kinds = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    try:
        distributed.init_process_group(kinds, timeout=timedelta(minutes=timeout_minutes))
    except (RuntimeError, ValueError, OSError) as error:
        raise InfrastructureError(f"process {rank()} of {world_size()} did not find the others: {error}") from error
    atexit.register(_leave)


def _leave() -> None:
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()


class Together:
    """What every backend of several processes has in common; see `Backend`. Values travel between CPUs."""

    def __init__(self) -> None:
        from torch import distributed

        self.rank: int = distributed.get_rank()
        self.world_size: int = distributed.get_world_size()

    def share(self, batches: list[Batch]) -> list[Batch]:
        """This process's part of the batches; each process gets as many."""
        from tracewheel.learner.sharing import shares

        return shares(batches, self.world_size)[self.rank]

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in their order."""
        from torch import distributed

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
