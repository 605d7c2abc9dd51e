"""The critic: the value function of PPO, and its part of an update: values for the advantages, then a fit to the returns.

`trunk` is a LoRA adapter of its own on the policy's base with a linear head; `light` is a small network
on the hidden states of the frozen base. Both start at value 0. Neither shares a parameter with the policy, so
their losses need no common scale.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tracewheel.config import CriticConfig, GaeAdvantageConfig, UpdateSections
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.learner.backends.backend import Backend
from tracewheel.learner.backends.select import make_critic_backend
from tracewheel.learner.batch import Batch, turn_starts
from tracewheel.learner.forward_passes import ForwardPasses
from tracewheel.learner.kernels.packing import Layout
from tracewheel.learner.kernels.token_logprobs import hidden_states
from tracewheel.learner.losses.aggregation import StepTotals, explained_variance, value_loss
from tracewheel.learner.models import LoraModels, Models
from tracewheel.learner.per_token import pad_per_token
from tracewheel.learner.trajectory_table import TrajectoryTable

ADAPTER = "critic"
WEIGHTS, OPTIMIZER = "critic.safetensors", "critic_optimizer.pt"


RANK, HIDDEN = 8, 128  # of the adapter; of the light network


class Critic:
    """Values of the states before each action token.

    Args:
        config: Its kind.
        models: The models whose base it shares.
        layout: How batches lie in memory; see `UpdateConfig.layout`.
        seed: Fixes its first weights.

    Raises:
        ConfigError: a trunk critic for a policy whose base is trained.
    """

    def __init__(self, config: CriticConfig, models: Models, layout: Layout, seed: int) -> None:
        self.config = config
        self._models = models
        self._layout = layout
        width = models.model.config.hidden_size
        device = next(models.model.parameters()).device
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            if config.kind == "trunk":
                self._add_adapter()
                self.head = nn.Sequential(nn.Linear(width, 1))
            else:
                self.head = nn.Sequential(nn.Linear(width, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
        for parameter in self.head[-1].parameters():
            nn.init.zeros_(parameter)
        self.head.to(device)

    def _add_adapter(self) -> None:
        from peft import LoraConfig

        if not isinstance(self._models, LoraModels):
            raise ConfigError(
                "learner.advantage.critic.kind: a trunk critic needs a frozen base; use 'light' with weights 'full'"
            )
        self._models.model.add_adapter(
            ADAPTER,
            LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", lora_dropout=0.0, task_type="CAUSAL_LM"),
        )
        self._models.model.set_adapter("policy")

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The trained parameters: the head, and the adapter's weights where there is one."""
        return [parameter for _, parameter in sorted(self._named().items())]

    def _named(self) -> dict[str, nn.Parameter]:
        adapter = {
            f"adapter.{name}": parameter
            for name, parameter in self._models.model.named_parameters()
            if self.config.kind == "trunk" and f".{ADAPTER}." in name
        }
        return {f"head.{name}": parameter for name, parameter in self.head.named_parameters()} | adapter

    @contextlib.contextmanager
    def active(self) -> Iterator[Any]:
        """The model its hidden states come from; take gradients before leaving."""
        if isinstance(self._models, LoraModels) and self.config.kind == "trunk":
            with self._models.adapter(ADAPTER) as model:
                yield model
        else:
            with self._models.frozen() as model:
                yield model

    def values(self, model: Any, batch: Batch) -> Tensor:
        """Values [B, T] with gradient; [b, t] belongs to the state in which token t is chosen. 0 off the action mask."""
        values = self.head(batch.at_preceding(self._hidden(model, batch)).to(self.head_dtype)).squeeze(-1)
        shifted = torch.nn.functional.pad(values, (1, 0))
        return shifted.masked_fill(batch.action_mask == 0, 0.0)

    def values_after(self, model: Any, batch: Batch) -> Tensor:
        """Values [B, T]; [b, t] belongs to the state that token t leads to. 0 off the action mask."""
        values: Tensor = self.head(self._hidden(model, batch).to(self.head_dtype)).squeeze(-1)
        return values.masked_fill(batch.action_mask == 0, 0.0)

    def _hidden(self, model: Any, batch: Batch) -> Tensor:
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.config.kind == "trunk"):
            return hidden_states(model, batch, layout=self._layout)

    @property
    def head_dtype(self) -> torch.dtype:
        """The type of the head, float32."""
        return next(self.head.parameters()).dtype

    def save(self, out: Path) -> None:
        """Write the weights; equal weights give equal bytes."""
        from safetensors.torch import save_file

        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in sorted(self._named().items())}, out / WEIGHTS)

    def load(self, state: Path) -> None:
        """Read the weights that `save` wrote.

        Raises:
            DataError: they are of a critic of another kind.
        """
        from safetensors.torch import load_file

        stored, own = load_file(state / WEIGHTS), self._named()
        if {name: tensor.shape for name, tensor in stored.items()} != {name: tensor.shape for name, tensor in own.items()}:
            raise DataError(f"{state / WEIGHTS}: is of another critic than learner.advantage.critic describes")
        with torch.no_grad():
            for name, tensor in stored.items():
                own[name].copy_(tensor)


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
