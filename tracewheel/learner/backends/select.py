"""The backend that a profile chooses, and how models are loaded for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from tracewheel.config import DeepSpeedConfig, PassesConfig, PolicyConfig, UpdateSections, WarmStartConfig
from tracewheel.core.errors import ConfigError
from tracewheel.core.kind_table import import_class
from tracewheel.learner.backends.backend import Backend, LocalBackend
from tracewheel.learner.backends.processes import world_size
from tracewheel.learner.kinds import DEEPSPEED
from tracewheel.learner.models import FullModels, Models


@contextlib.contextmanager
def models_loading(settings: PassesConfig, policy: PolicyConfig) -> Iterator[PolicyConfig]:
    """Context in which to load the models that are trained, by the policy settings that it yields.

    Under ZeRO-3 a base with an adapter is partitioned over the processes while it is read; a fully trained model
    is read into each process's main memory and partitioned from there.
    """
    backend = settings.backend
    if not isinstance(backend, DeepSpeedConfig) or backend.stage != 3:
        yield policy
    elif settings.weights == "full":
        yield policy.model_copy(update={"device": "cpu"})
    else:
        with import_class(f"{DEEPSPEED}:partition_while_loading", "backend")(backend, policy):
            yield policy


def make_backend(settings: PassesConfig, device: str, model: Any, parameters: list[torch.nn.Parameter]) -> Backend:
    """The backend that trains `parameters` of `model`.

    Raises:
        ConfigError: torchrun started several processes for a profile that asks for one.
    """
    if not isinstance(settings.backend, DeepSpeedConfig):
        if world_size() > 1:
            section = "warm_start" if isinstance(settings, WarmStartConfig) else "learner"
            raise ConfigError(
                f"torchrun has started {world_size()} processes, but {section}.backend.kind is 'local': set it to 'deepspeed'"
            )
        return LocalBackend(model, parameters, settings.max_grad_norm)
    made: Backend = import_class(f"{DEEPSPEED}:DeepSpeedBackend", "backend")(
        settings.backend, device, model, parameters, settings.max_grad_norm
    )
    return made


def make_policy_backend(config: UpdateSections, models: Models) -> Backend:
    """The backend that trains the policy beside its reference.

    Raises:
        ConfigError: torchrun started several processes for a profile that asks for one.
    """
    settings, device = config.learner, config.policy.device
    if isinstance(models, FullModels) and isinstance(settings.backend, DeepSpeedConfig) and settings.backend.stage == 3:
        import_class(f"{DEEPSPEED}:partition_frozen", "backend")(settings.backend, device, models.reference_model)
    return make_backend(settings, device, models.model, models.parameters)


def make_critic_backend(config: UpdateSections, parameters: list[torch.nn.Parameter]) -> Backend:
    """The backend that trains a critic: its parameters are few, so every process holds all of them."""
    settings = config.learner
    if not isinstance(settings.backend, DeepSpeedConfig):
        return LocalBackend(None, parameters, settings.max_grad_norm)
    made: Backend = import_class(f"{DEEPSPEED}:DataParallelBackend", "backend")(parameters, settings.max_grad_norm)
    return made
