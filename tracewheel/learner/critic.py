"""The value function of PPO: the expected return from a state.

`trunk` is a LoRA adapter of its own on the policy's base with a linear head; `light` is a small network
on the hidden states of the frozen base. Both start at value 0. Neither shares a parameter with the policy, so
their losses need no common scale.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tracewheel.config import CriticConfig
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.learner.batch import Batch
from tracewheel.learner.kernels.packing import Layout
from tracewheel.learner.kernels.token_logprobs import hidden_states
from tracewheel.learner.models import LoraModels, Models

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
