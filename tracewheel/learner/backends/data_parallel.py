"""Data parallelism: the same weights on every process, gradients summed. For the few parameters of a critic."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, distributed

from tracewheel.learner.backends.backend import LocalBackend
from tracewheel.learner.backends.process_group import ProcessGroup


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
