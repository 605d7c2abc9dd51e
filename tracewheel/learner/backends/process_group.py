"""The base of backends on several processes: exchanges between them, and shares of the work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from tracewheel.learner.backends.backend import LocalBackend
from tracewheel.learner.batch import Batch


def shard_batches(batches: list[Batch], world_size: int) -> list[list[Batch]]:
    """The batches of each process, by rank; all get the same number.

    Each row goes to exactly one process. Fillers have no action token and -1 for the position of their row.
    """
    if not batches:
        return [[] for _ in range(world_size)]
    even = _evened(batches, world_size)
    even += [_filler(even[-1])] * (-len(even) % world_size)
    return [even[number::world_size] for number in range(world_size)]


def _evened(batches: list[Batch], world_size: int) -> list[Batch]:
    even = list(batches)
    while len(even) % world_size:
        fullest = max(range(len(even)), key=lambda number: even[number].token_ids.numel() * (len(even[number].rows) > 1))
        if len(even[fullest].rows) == 1:
            break
        half = (len(even[fullest].rows) + 1) // 2
        even[fullest : fullest + 1] = [_rows(even[fullest], slice(0, half)), _rows(even[fullest], slice(half, None))]
    # Longest first, so that simultaneous passes are of similar length.
    return sorted(even, key=lambda batch: -batch.token_ids.numel())


def _rows(batch: Batch, part: slice) -> Batch:
    """Some rows of a batch, without the padding that none of them needs."""
    return _cut(batch, part, int(batch.attention_mask[part].sum(1).max()))


def _cut(batch: Batch, rows: slice, length: int) -> Batch:
    values = {name: tensor[rows] for name, tensor in batch.tensors().items()}
    return replace(batch, **{name: tensor[:, :length] if tensor.dim() == 2 else tensor for name, tensor in values.items()})


def _filler(like: Batch) -> Batch:
    short = _cut(like, slice(0, 1), 2)
    return replace(
        short,
        before=None,
        attention_mask=torch.ones_like(short.attention_mask),
        action_mask=torch.zeros_like(short.action_mask),
        behaviour_logprobs=torch.zeros_like(short.behaviour_logprobs),
        advantages=torch.zeros_like(short.advantages),
        turns=torch.full_like(short.turns, -1),
        rows=torch.full_like(short.rows, -1),
    )


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


class DataParallelBackend(ProcessGroup):
    """AdamW on every process, on the summed gradients.

    Args:
        parameters: The parameters to train, equal on all processes.
        max_grad_norm: Gradients are clipped to this norm.
    """

    model = None

    def __init__(self, parameters: list[torch.nn.Parameter], max_grad_norm: float) -> None:
        super().__init__()
        self._local = LocalBackend(None, parameters, max_grad_norm)

    def set_weights(self, weights: dict[str, Tensor]) -> None:
        """Set the parameters on every process."""
        self._local.set_weights(weights)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a scalar."""
        self._local.backward(loss)

    def step(self, learning_rate: float) -> float:
        """Sum the gradients of the processes and take an optimiser step."""
        for parameter in self._local.parameters:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            distributed.all_reduce(gradient)
            parameter.grad = gradient
        return self._local.step(learning_rate)

    def weights(self) -> None:
        """None: every process holds them whole."""

    def save(self, path: Path) -> None:
        """Write the optimiser's state, on the first process."""
        if self.rank == 0:
            self._local.save(path)

    def load(self, path: Path) -> None:
        """Read what `save` wrote."""
        self._local.load(path)
