"""The interface of a backend, and the one for a single process.

Every process sees every batch and every reward, so totals and advantages need no communication.
Only the passes through the model are divided.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from tracewheel.learner.batch import Batch


class Backend(Protocol):
    """One optimiser over one set of parameters, on one process or many.

    `model` runs forward passes. The gradient of a step is that of the sum of all losses given to `backward` on
    all processes.
    """

    model: Any
    rank: int
    world_size: int

    def shard(self, batches: list[Batch]) -> list[Batch]:
        """This process's part of the batches, as many as on each other process; fillers have no action tokens."""
        ...

    def merge(self, per_row: list[Tensor | None]) -> list[Tensor]:
        """Per-row values [T] of all processes, from those that each has computed."""
        ...

    def total(self, figures: dict[str, float]) -> dict[str, float]:
        """The sum of each figure over the processes."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, by rank."""
        ...

    def weights(self) -> dict[str, Tensor] | None:
        """On the first process the trained weights by name, if the model holds only a part of them; else None."""
        ...

    def set_weights(self, weights: dict[str, Tensor]) -> None:
        """Give all trained parameters of the model other values, by name. `load` follows. Every process calls it."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a scalar."""
        ...

    def step(self, learning_rate: float) -> float:
        """Clip the gradient, take an optimiser step, clear the gradient. Returns the norm before clipping."""
        ...

    def save(self, path: Path) -> None:
        """Write the optimiser's state. Every process calls it, and the first writes."""
        ...

    def load(self, path: Path) -> None:
        """Read what `save` wrote."""
        ...


class LocalBackend:
    """AdamW (Loshchilov and Hutter 2019) in one process.

    Args:
        model: Runs forward passes.
        parameters: The parameters to train.
        max_grad_norm: Gradients are clipped to this norm.
    """

    rank = 0
    world_size = 1

    def __init__(self, model: Any, parameters: list[torch.nn.Parameter], max_grad_norm: float) -> None:
        self.model = model
        self.parameters = parameters
        self.optimizer = torch.optim.AdamW(parameters, weight_decay=0.0)
        self._max_grad_norm = max_grad_norm

    def shard(self, batches: list[Batch]) -> list[Batch]:
        return batches

    def merge(self, per_row: list[Tensor | None]) -> list[Tensor]:
        return [row for row in per_row if row is not None]

    def total(self, figures: dict[str, float]) -> dict[str, float]:
        return figures

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def weights(self) -> None:
        return None

    @torch.no_grad()
    def set_weights(self, weights: dict[str, Tensor]) -> None:
        parameters = dict(self.model.named_parameters())
        for name, value in weights.items():
            parameters[name].copy_(value)

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def step(self, learning_rate: float) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, self._max_grad_norm, error_if_nonfinite=True)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(norm)

    def save(self, path: Path) -> None:
        torch.save(self.optimizer.state_dict(), path)

    def load(self, path: Path) -> None:
        self.optimizer.load_state_dict(torch.load(path, weights_only=True))
