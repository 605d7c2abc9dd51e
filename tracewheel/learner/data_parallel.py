"""The same weights on every process, and the sum of their gradients: for the few parameters of a critic."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, distributed

from tracewheel.learner.backend import LocalBackend
from tracewheel.learner.processes import Together


class DataParallelBackend(Together):
    """AdamW on every process, with the gradients of all.

    Args:
        parameters: The parameters that are trained, the same on all processes.
        max_grad_norm: The norm that gradients are clipped to.
    """

    model = None

    def __init__(self, parameters: list[torch.nn.Parameter], max_grad_norm: float) -> None:
        super().__init__()
        self._local = LocalBackend(None, parameters, max_grad_norm)

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
        """Every process holds them whole."""

    def save(self, path: Path) -> None:
        """Write the optimiser's state, on the first process."""
        if self.rank == 0:
            self._local.save(path)

    def load(self, path: Path) -> None:
        """Read what `save` wrote."""
        self._local.load(path)
