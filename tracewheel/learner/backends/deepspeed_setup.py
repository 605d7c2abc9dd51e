"""DeepSpeed for this learner: its settings, models partitioned over the processes, and passes outside its engine."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tracewheel.config import DeepSpeedConfig, PolicyConfig
from tracewheel.core.errors import InfrastructureError
from tracewheel.learner.backends.processes import join
from tracewheel.learner.kernels.language_model import language_model


def _import_deepspeed(device: str) -> Any:
    """Import DeepSpeed for a device, with its log at warnings.

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
        # Its shared-memory all-reduce takes a minute to compile at the first start; gloo does the same work.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


def zero_settings(config: DeepSpeedConfig, max_grad_norm: float) -> dict[str, Any]:
    """DeepSpeed's settings for a profile."""
    zero: dict[str, Any] = {"stage": config.stage, "overlap_comm": config.overlap_comm, "contiguous_gradients": True}
    memory = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    if config.offload != "none":
        zero["offload_optimizer"] = memory
    if config.offload == "all" and config.stage == 3:
        zero["offload_param"] = memory
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        # A step has as many passes as its trajectories need; the learner ends it.
        "managed_gradient_accumulation": False,
        "gradient_clipping": max_grad_norm,
        "zero_optimization": zero,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1 << 62,
    }


@contextlib.contextmanager
def partition_while_loading(config: DeepSpeedConfig, policy: PolicyConfig) -> Iterator[None]:
    """Context in which loaded models are partitioned weight by weight, in the policy's type: no process holds a whole one
    (stage 3).
    """
    if config.stage != 3:
        yield
        return
    join_processes(config, policy.device)
    from transformers.integrations import HfDeepSpeedConfig, unset_hf_deepspeed_config

    settings = zero_settings(config, max_grad_norm=1.0)
    # It makes every weight in the type of its settings, whatever type the model asks for. The optimiser's settings have
    # no such part: they would train the adapters in bfloat16 too.
    settings["bf16"] = {"enabled": policy.dtype == "bfloat16"}
    alive = HfDeepSpeedConfig(settings)
    try:
        yield
    finally:
        unset_hf_deepspeed_config()
        del alive


def partition_frozen(config: DeepSpeedConfig, device: str, model: nn.Module) -> None:
    """Partition a frozen model that was loaded whole; it is used as before (stage 3)."""
    deepspeed = join_processes(config, device)
    settings = zero_settings(config, max_grad_norm=1.0)
    settings["zero_optimization"].pop("offload_optimizer", None)
    partition(deepspeed, settings, device, model)
    engine, *_ = deepspeed.initialize(model=Scaled(model, 1), config=settings)
    start_passes_at_the_decoder(engine.optimizer, model)


def join_processes(config: DeepSpeedConfig, device: str) -> Any:
    """Join the process group; returns the DeepSpeed module."""
    deepspeed = _import_deepspeed(device)
    join(device)
    deepspeed.init_distributed()
    return deepspeed


def partition(deepspeed: Any, settings: dict[str, Any], device: str, model: nn.Module) -> None:
    """Partition weights one by one from main memory; `initialize` would put all on the GPU first."""
    deepspeed.zero.Init(module=model, config_dict_or_path=settings, dtype=next(model.parameters()).dtype)
    for buffer in model.buffers():
        buffer.data = buffer.data.to(device)


class Scaled(nn.Module):
    """The root module for DeepSpeed. It multiplies the loss by the number of processes.

    DeepSpeed averages the gradients of the processes; a step needs their sum. Forward passes call the model's own
    parts, because only action tokens are projected onto the vocabulary.
    """

    def __init__(self, model: nn.Module, factor: int) -> None:
        super().__init__()
        self.model = model
        self.factor = factor

    def forward(self, loss: Tensor) -> Tensor:
        return loss * self.factor


class _ParameterHolder(nn.ParameterList):
    """Parameters in the form of a module, which ZeRO-3 expects."""

    def ds_external_parameters(self) -> tuple[()]:
        return ()


def start_passes_at_the_decoder(offload: Any, model: Any) -> None:
    """Let ZeRO-3 trace passes from the decoder, where ours start; by default it resets at the root, between the passes."""
    offload.fwd_pre_hook.remove()
    language_model(model).get_decoder().register_forward_pre_hook(lambda *_: offload.get_param_coordinator().reset_step())
    # After each step ZeRO-3 partitions again all weights it knows of: only those of now, since a critic may add others.
    offload.module = _ParameterHolder(model.parameters())
