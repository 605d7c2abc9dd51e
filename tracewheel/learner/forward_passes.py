"""Forward passes without gradient over an update's trajectories, and how these become batches."""

from __future__ import annotations

import random
from itertools import chain
from typing import Any

from torch import Tensor

from tracewheel.config import PolicyGradientConfig
from tracewheel.learner.backends.backend import Backend
from tracewheel.learner.batch import Batch
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.learner.models import Models
from tracewheel.learner.trajectory_table import TrajectoryTable


class ForwardPasses:
    """Cuts trajectories into minibatches and micro-batches, and scores their tokens under other policies.

    Args:
        settings: The learner's.
        device: Where the models are.
        models: Policy and reference.
        backend: Divides the work among processes.
    """

    def __init__(self, settings: PolicyGradientConfig, device: str, models: Models, backend: Backend) -> None:
        self._settings = settings
        self._device = device
        self._models = models
        self._backend = backend

    def batches(self, table: TrajectoryTable) -> list[Batch]:
        """The rows in micro-batches, with their column `advantages` where there is one."""
        if not len(table):
            return []
        advantages = table.frame["advantages"].tolist() if "advantages" in table.frame else None
        settings = self._settings
        return table.batches(settings.micro_batch_tokens, self._device, advantages, settings.layout)

    def minibatches(self, table: TrajectoryTable, rng: random.Random) -> list[TrajectoryTable]:
        """The rows of each optimiser step: trajectories, or whole groups, drawn at random."""
        units = self._units(table)
        rng.shuffle(units)
        n_steps = min(self._settings.minibatches, len(units))
        return [table.take(sorted(chain.from_iterable(units[number::n_steps]))) for number in range(n_steps)]

    def _units(self, table: TrajectoryTable) -> list[list[int]]:
        """The positions of rows that are not drawn apart."""
        if self._settings.minibatch_of == "trajectories":
            return [[position] for position in range(len(table))]
        groups: dict[Any, list[int]] = {}
        for position, group in enumerate(table.frame["group"]):
            groups.setdefault(group, []).append(position)
        return list(groups.values())

    def with_reference(self, table: TrajectoryTable) -> TrajectoryTable:
        """The rows with the log-probabilities of the reference policy, as `reference`."""
        with self._models.reference() as model:
            return self._with_logprobs("reference", table, model)

    def with_proximal(self, table: TrajectoryTable) -> TrajectoryTable:
        """The rows with the log-probabilities of the policy as it is now, as `proximal`."""
        return self._with_logprobs("proximal", table, self._backend.model)

    def _with_logprobs(self, name: str, table: TrajectoryTable, model: Any) -> TrajectoryTable:
        def logprobs(batch: Batch) -> Tensor:
            return action_logprobs(model, batch, layout=self._settings.layout)[0]

        return table.with_pass(name, self._backend, self.batches(table), logprobs)
