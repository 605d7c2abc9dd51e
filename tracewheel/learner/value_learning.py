"""The critic's side of an update: values for the advantages, then a fit to the returns."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tracewheel.config import GaeAdvantageConfig, UpdateSections
from tracewheel.learner.advantages.actions import turn_starts
from tracewheel.learner.backend import Backend
from tracewheel.learner.backends import make_critic_backend
from tracewheel.learner.batch import Batch
from tracewheel.learner.critic import OPTIMIZER, Critic
from tracewheel.learner.losses import StepTotals, explained_variance, value_loss
from tracewheel.learner.models import Models
from tracewheel.learner.passes import Passes
from tracewheel.learner.per_token import spread
from tracewheel.learner.rows import Rows


class ValueLearner:
    """A critic with its optimiser.

    Args:
        config: The profile.
        advantage: The part of it that describes the critic.
        models: The models whose base it sits on.
        passes: How rows become batches.
        state: The folder of the previous update; the critic goes on from there where it holds one.

    Raises:
        ConfigError: a trunk critic for a policy whose base is trained.
        DataError: the stored critic is of another kind or size.
    """

    def __init__(
        self, config: UpdateSections, advantage: GaeAdvantageConfig, models: Models, passes: Passes, state: Path
    ) -> None:
        self.config = advantage.critic
        self.critic = Critic(advantage.critic, models, config.learner.layout, config.seed)
        self._advantage = advantage
        self._passes = passes
        self._backend: Backend = make_critic_backend(config, self.critic.parameters)
        if (state / OPTIMIZER).is_file():
            self.critic.load(state)
            self._backend.load(state / OPTIMIZER)

    def with_values(self, rows: Rows) -> Rows:
        """The rows with the value of the state before each action token."""
        with self.critic.active() as model:
            return rows.with_pass(
                "values", self._backend, self._passes.batches(rows), lambda batch: self.critic.values(model, batch)
            )

    def learn(self, rows: Rows, rng: random.Random) -> dict[str, float]:
        """Fit the values to the returns; explained variance is of the values before."""
        batches = self._passes.batches(rows)
        masks = torch.cat([self._mask(batch).flatten() for batch in batches])
        flat = {
            name: torch.cat([spread(rows.extra[name], batch).flatten() for batch in batches]) for name in ("values", "returns")
        }
        explained = explained_variance(flat["values"], flat["returns"], masks)
        figures = {} if explained is None else {"explained_variance": explained}
        losses = []
        with self.critic.active() as model:
            for _ in range(self.config.epochs):
                losses += [self._step(model, part) for part in self._passes.parts(rows, rng)]
        return figures | {"value_loss": sum(losses) / len(losses)}

    def _step(self, model: Any, rows: Rows) -> float:
        batches = self._passes.batches(rows)
        totals = StepTotals(tokens=sum(int(self._mask(batch).sum()) for batch in batches), sequences=len(rows))
        total = 0.0
        for batch in self._backend.share(batches):
            old, returns = spread(rows.extra["values"], batch), spread(rows.extra["returns"], batch)
            values = self.critic.values(model, batch)
            loss = value_loss(values, old, returns, self._mask(batch), totals, self.config.clip)
            self._backend.backward(loss)
            total += loss.item()
        self._backend.step(self.config.learning_rate)
        return self._backend.total({"value_loss": total})["value_loss"]

    def _mask(self, batch: Batch) -> Tensor:
        """Where values are fitted [B, T]: at every action token, or at the first of each turn when turns are the actions."""
        return batch.action_mask if self._advantage.granularity == "token" else turn_starts(batch.turns)

    def save_optimizer(self, out: Path) -> None:
        """Write the optimiser's state; every process calls it."""
        self._backend.save(out / OPTIMIZER)
