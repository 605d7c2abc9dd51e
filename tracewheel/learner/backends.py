"""Which backend an update runs on, as the profile says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from tracewheel.config import DeepSpeedConfig, UpdateSections
from tracewheel.core.errors import ConfigError
from tracewheel.learner.backend import Backend, LocalBackend
from tracewheel.learner.models import FullModels, Models
from tracewheel.learner.processes import world_size


@contextlib.contextmanager
def loading(config: UpdateSections) -> Iterator[UpdateSections]:
    """Load the models of an update in here, with the profile that is given.

    Under ZeRO-3 a base with an adapter is spread over the processes while it is read; a model that is
    trained whole is read into each process's main memory, and spread from there.
    """
    backend = config.learner.backend
    if not isinstance(backend, DeepSpeedConfig) or backend.stage != 3:
        yield config
    elif config.learner.weights == "full":
        yield config.model_copy(update={"policy": config.policy.model_copy(update={"device": "cpu"})})
    else:
        from tracewheel.learner.zero import spread_while_loading

        with spread_while_loading(backend, config.policy.device):
            yield config


def make_backend(config: UpdateSections, models: Models) -> Backend:
    """The backend that trains the policy.

    Raises:
        ConfigError: torchrun has started several processes for a profile that asks for one.
    """
    settings = config.learner
    if not isinstance(settings.backend, DeepSpeedConfig):
        if world_size() > 1:
            raise ConfigError(
                f"torchrun has started {world_size()} processes, but learner.backend.kind is 'local': set it to 'deepspeed'"
            )
        return LocalBackend(models.model, models.parameters, settings.max_grad_norm)
    from tracewheel.learner.deepspeed_backend import DeepSpeedBackend
    from tracewheel.learner.zero import spread_frozen

    device = config.policy.device
    if isinstance(models, FullModels) and settings.backend.stage == 3:
        spread_frozen(settings.backend, device, models.beside)
    return DeepSpeedBackend(settings.backend, device, models.model, models.parameters, settings.max_grad_norm)


def make_critic_backend(config: UpdateSections, parameters: list[torch.nn.Parameter]) -> Backend:
    """The backend that trains a critic: its parameters are few, so every process has all of them."""
    settings = config.learner
    if not isinstance(settings.backend, DeepSpeedConfig):
        return LocalBackend(None, parameters, settings.max_grad_norm)
    from tracewheel.learner.data_parallel import DataParallelBackend

    return DataParallelBackend(parameters, settings.max_grad_norm)
