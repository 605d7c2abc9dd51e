"""Passes over an update's rows without gradient: what other policies think of their tokens."""

from __future__ import annotations

import random
from typing import Any

from torch import Tensor

from tracewheel.config import PolicyGradientConfig
from tracewheel.learner.backend import Backend
from tracewheel.learner.batch import Batch
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.learner.models import Models
from tracewheel.learner.rows import Rows


class Passes:
    """How rows become batches, and what the models say of them.

    Args:
        settings: The learner's.
        device: Where the models are.
        models: Policy and reference.
        backend: Shares the work among processes.
    """

    def __init__(self, settings: PolicyGradientConfig, device: str, models: Models, backend: Backend) -> None:
        self._settings = settings
        self._device = device
        self._models = models
        self._backend = backend

    def batches(self, rows: Rows) -> list[Batch]:
        """The rows in micro-batches, with their advantages where they have some."""
        advantages = rows.table["advantages"].tolist() if "advantages" in rows.table else None
        settings = self._settings
        return rows.batches(settings.micro_batch_tokens, self._device, advantages, settings.layout) if len(rows) else []

    def parts(self, rows: Rows, rng: random.Random) -> list[Rows]:
        """The rows of each optimiser step, in random order."""
        order = list(range(len(rows)))
        rng.shuffle(order)
        n_steps = min(self._settings.minibatches, len(order))
        return [rows.take(sorted(order[number::n_steps])) for number in range(n_steps)]

    def with_reference(self, rows: Rows) -> Rows:
        """The rows with the reference's log-probabilities."""
        with self._models.reference() as model:
            return rows.with_pass("reference", self._backend, self.batches(rows), lambda batch: self._logprobs(model, batch))

    def with_proximal(self, rows: Rows) -> Rows:
        """The rows with the log-probabilities of the policy as it is now."""
        model = self._backend.model
        return rows.with_pass("proximal", self._backend, self.batches(rows), lambda batch: self._logprobs(model, batch))

    def _logprobs(self, model: Any, batch: Batch) -> Tensor:
        return action_logprobs(model, batch, layout=self._settings.layout)[0]
