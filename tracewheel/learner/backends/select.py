"""The backend that a profile chooses, and how models are loaded for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from tracewheel.config import DeepSpeedConfig, UpdateSections
from tracewheel.core.errors import ConfigError
from tracewheel.learner.backends.backend import Backend, LocalBackend
from tracewheel.learner.backends.processes import world_size
from tracewheel.learner.models import FullModels, Models


@contextlib.contextmanager
def models_loading(config: UpdateSections) -> Iterator[UpdateSections]:
    """Context in which to load an update's models, from the profile that it yields.

    Under ZeRO-3 a base with an adapter is partitioned over the processes while it is read; a fully trained model
    is read into each process's main memory and partitioned from there.
    """
    backend = config.learner.backend
    if not isinstance(backend, DeepSpeedConfig) or backend.stage != 3:
        yield config
    elif config.learner.weights == "full":
        yield config.model_copy(update={"policy": config.policy.model_copy(update={"device": "cpu"})})
    else:
        from tracewheel.learner.backends.deepspeed_setup import partition_while_loading

        with partition_while_loading(backend, config.policy):
            yield config


def make_backend(config: UpdateSections, models: Models) -> Backend:
    """The backend that trains the policy.

    Raises:
        ConfigError: torchrun started several processes for a profile that asks for one.
    """
    settings = config.learner
    if not isinstance(settings.backend, DeepSpeedConfig):
        if world_size() > 1:
            raise ConfigError(
                f"torchrun has started {world_size()} processes, but learner.backend.kind is 'local': set it to 'deepspeed'"
            )
        return LocalBackend(models.model, models.parameters, settings.max_grad_norm)
    from tracewheel.learner.backends.deepspeed_backend import DeepSpeedBackend
    from tracewheel.learner.backends.deepspeed_setup import partition_frozen

    device = config.policy.device
    if isinstance(models, FullModels) and settings.backend.stage == 3:
        partition_frozen(settings.backend, device, models.reference_model)
    return DeepSpeedBackend(settings.backend, device, models.model, models.parameters, settings.max_grad_norm)


def make_critic_backend(config: UpdateSections, parameters: list[torch.nn.Parameter]) -> Backend:
    """The backend that trains a critic: its parameters are few, so every process holds all of them."""
    settings = config.learner
    if not isinstance(settings.backend, DeepSpeedConfig):
        return LocalBackend(None, parameters, settings.max_grad_norm)
    from tracewheel.learner.backends.data_parallel import DataParallelBackend

    return DataParallelBackend(parameters, settings.max_grad_norm)
