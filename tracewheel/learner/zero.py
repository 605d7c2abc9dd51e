"""DeepSpeed as this learner uses it: its settings, models spread over the processes, and passes that are not its own."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tracewheel.config import DeepSpeedConfig
from tracewheel.core.errors import InfrastructureError
from tracewheel.learner.kernels.language_model import language_model
from tracewheel.learner.processes import join


def import_deepspeed(device: str) -> Any:
    """DeepSpeed, told which device it is on before it looks for one, and quiet.

    Raises:
        InfrastructureError: it is not installed.
    """
    os.environ.setdefault("DS_ACCELERATOR", device.partition(":")[0])
    try:
        import deepspeed
    except ImportError as error:
        raise InfrastructureError(
            "learner.backend.kind 'deepspeed' needs DeepSpeed: pip install 'tracewheel[deepspeed]'"
        ) from error
    deepspeed.utils.logger.setLevel(logging.WARNING)
    if device == "cpu":
        # Its all-reduce through shared memory is compiled at the first start, for a minute; gloo does the same.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def zero_settings(config: DeepSpeedConfig, max_grad_norm: float) -> dict[str, Any]:
    """What a profile asks for, in DeepSpeed's words."""
    zero: dict[str, Any] = {"stage": config.stage, "overlap_comm": config.overlap_comm, "contiguous_gradients": True}
    memory = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    if config.offload != "none":
        zero["offload_optimizer"] = memory
    if config.offload == "all" and config.stage == 3:
        zero["offload_param"] = memory
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # A step takes as many passes as its trajectories need: the learner says when it ends.
        "managed_gradient_accumulation": False,
        "gradient_clipping": max_grad_norm,
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1 << 62,
    }


@contextlib.contextmanager
def spread_while_loading(config: DeepSpeedConfig, device: str) -> Iterator[None]:
    """Models that are loaded here are spread over the processes weight by weight: none holds one whole (stage 3)."""
    if config.stage != 3:
        yield
        return
    meet(config, device)
    from transformers.integrations import HfDeepSpeedConfig, unset_hf_deepspeed_config

    alive = HfDeepSpeedConfig(zero_settings(config, max_grad_norm=1.0))
    try:
        yield
    finally:
        unset_hf_deepspeed_config()
        del alive


def spread_frozen(config: DeepSpeedConfig, device: str, model: nn.Module) -> None:
    """Spread a model that is not trained, and was loaded whole, over the processes; it is used as before (stage 3)."""
    deepspeed = meet(config, device)
    settings = zero_settings(config, max_grad_norm=1.0)
    settings["zero_optimization"].pop("offload_optimizer", None)
    spread(deepspeed, settings, device, model)
    engine, *_ = deepspeed.initialize(model=Scaled(model, 1), config=settings)
    start_passes_at_the_decoder(engine.optimizer, model)


def meet(config: DeepSpeedConfig, device: str) -> Any:
    """DeepSpeed, with the processes that it is to run on."""
    deepspeed = import_deepspeed(device)
    join(device, config.timeout_minutes)
    deepspeed.init_distributed()
    return deepspeed


def spread(deepspeed: Any, settings: dict[str, Any], device: str, model: nn.Module) -> None:
    """Spread weights from main memory one after the other; left to `initialize`, all would go to the GPU first."""
    deepspeed.zero.Init(module=model, config_dict_or_path=settings, dtype=next(model.parameters()).dtype)
    for buffer in model.buffers():
        buffer.data = buffer.data.to(device)


class Scaled(nn.Module):
    """The root that DeepSpeed is given. What goes through it is the loss, times the number of processes.

    DeepSpeed takes the mean of the processes' gradients, where a step is to have their sum. Passes
    themselves go to the model's own parts, because only action tokens are projected on the vocabulary.
    """

    def __init__(self, model: nn.Module, factor: int) -> None:
        super().__init__()
        self.model = model
        self.factor = factor

    def forward(self, loss: Tensor) -> Tensor:
        return loss * self.factor


class _Known(nn.ParameterList):
    """Parameters, where ZeRO-3 expects a module."""

    def ds_external_parameters(self) -> tuple[()]:
        return ()


def start_passes_at_the_decoder(offload: Any, model: Any) -> None:
    """Let ZeRO-3 follow passes from where ours start; it would start anew at the root, between forward and backward."""
    offload.fwd_pre_hook.remove()
    language_model(model).get_decoder().register_forward_pre_hook(lambda *_: offload.get_param_coordinator().reset_step())
    # After each step it takes back all weights that are whole: of those it knows now, since a critic may add others.
    offload.module = _Known(model.parameters())
