"""The critic's part of an update: values for the advantages, then a fit to the returns."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tracewheel.config import GaeAdvantageConfig, UpdateSections
from tracewheel.learner.advantages.actions import turn_starts
from tracewheel.learner.backends.backend import Backend
from tracewheel.learner.backends.select import make_critic_backend
from tracewheel.learner.batch import Batch
from tracewheel.learner.critic import OPTIMIZER, Critic
from tracewheel.learner.forward_passes import ForwardPasses
from tracewheel.learner.losses import StepTotals, explained_variance, value_loss
from tracewheel.learner.models import Models
from tracewheel.learner.per_token import pad_per_token
from tracewheel.learner.trajectory_table import TrajectoryTable


class ValueLearner:
    """A critic with its optimiser.

    Args:
        config: The profile.
        advantage: The part of it that describes the critic.
        models: The models whose base the critic shares.
        passes: Cuts trajectories into batches.
        state: The folder of the previous update; a critic stored there is resumed.

    Raises:
        ConfigError: a trunk critic for a policy whose base is trained.
        DataError: the stored critic is of another kind.
    """

    def __init__(
        self, config: UpdateSections, advantage: GaeAdvantageConfig, models: Models, passes: ForwardPasses, state: Path
    ) -> None:
        self.config = advantage.critic
        self.critic = Critic(advantage.critic, models, config.learner.layout, config.seed)
        self._advantage = advantage
        self._passes = passes
        self._backend: Backend = make_critic_backend(config, self.critic.parameters)
        if self.stored(state):
            self.resume(state)

    @staticmethod
    def stored(state: Path) -> bool:
        """Whether the folder of an update holds a critic."""
        return (state / OPTIMIZER).is_file()

    def resume(self, state: Path) -> None:
        """Continue with the stored critic.

        Raises:
            DataError: it is of another kind.
        """
        self.critic.load(state)
        self._backend.load(state / OPTIMIZER)

    def with_values(self, table: TrajectoryTable) -> TrajectoryTable:
        """The rows with `values`: of the state before each action token."""
        with self.critic.active() as model:
            batches = self._passes.batches(table)
            return table.with_pass("values", self._backend, batches, lambda batch: self.critic.values(model, batch))

    def with_values_after(self, table: TrajectoryTable) -> TrajectoryTable:
        """The rows with `values_after`: of the state after each action token."""
        with self.critic.active() as model:
            batches = self._passes.batches(table)
            return table.with_pass("values_after", self._backend, batches, lambda batch: self.critic.values_after(model, batch))

    def learn(self, table: TrajectoryTable, rng: random.Random, *, warmup: bool = False) -> dict[str, float]:
        """Fit the values to the returns; the explained variance is that of the values before.

        Args:
            table: The rows, with `values` and `returns`.
            rng: Draws the minibatches.
            warmup: Whether the critic is trained alone in this iteration.
        """
        epochs = (self.config.warmup_epochs if warmup else None) or self.config.epochs
        batches = self._passes.batches(table)
        masks = torch.cat([self._mask(batch).flatten() for batch in batches])
        values, returns = (
            torch.cat([pad_per_token(table.per_token[name], batch).flatten() for batch in batches])
            for name in ("values", "returns")
        )
        explained = explained_variance(values, returns, masks)
        figures = {} if explained is None else {"explained_variance": explained}
        losses = []
        with self.critic.active() as model:
            for _ in range(epochs):
                losses += [self._step(model, minibatch) for minibatch in self._passes.minibatches(table, rng)]
        return figures | {"value_loss": sum(losses) / len(losses)}

    def save_optimizer(self, out: Path) -> None:
        """Write the optimiser's state; every process calls it."""
        self._backend.save(out / OPTIMIZER)

    def _step(self, model: Any, table: TrajectoryTable) -> float:
        batches = self._passes.batches(table)
        totals = StepTotals(tokens=sum(int(self._mask(batch).sum()) for batch in batches), sequences=len(table))
        total = 0.0
        for batch in self._backend.shard(batches):
            old, returns = (pad_per_token(table.per_token[name], batch) for name in ("values", "returns"))
            values = self.critic.values(model, batch)
            loss = value_loss(values, old, returns, self._mask(batch), totals, self.config.clip)
            self._backend.backward(loss)
            total += loss.item()
        self._backend.step(self.config.learning_rate)
        return self._backend.total({"value_loss": total})["value_loss"]

    def _mask(self, batch: Batch) -> Tensor:
        """Where values are fitted [B, T]: at every action token, or at the first of each turn when turns are the actions."""
        return batch.action_mask if self._advantage.granularity == "token" else turn_starts(batch.turns)
