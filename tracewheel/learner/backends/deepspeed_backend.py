"""ZeRO (Rajbhandari et al. 2020, arXiv:1910.02054) through DeepSpeed: the optimiser's state, the gradients and,
at stage 3, the weights are partitioned over the processes.

State files have the format of one process: one process reads what several wrote, and the reverse.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tracewheel.config import DeepSpeedConfig, PolicyConfig
from tracewheel.core.errors import InfrastructureError
from tracewheel.learner.backends.process_group import ProcessGroup
from tracewheel.learner.backends.processes import join, world_size
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


MOMENTS = ("exp_avg", "exp_avg_sq")


class DeepSpeedBackend(ProcessGroup):
    """AdamW under ZeRO; see `Backend`.

    Args:
        config: Stage, offload and overlap.
        device: "cpu" or "cuda".
        model: A model of transformers, with or without adapters; runs forward passes.
        parameters: The parameters to train.
        max_grad_norm: Gradients are clipped to this norm.

    Raises:
        InfrastructureError: DeepSpeed is not installed, or the processes do not find each other.
    """

    def __init__(
        self, config: DeepSpeedConfig, device: str, model: nn.Module, parameters: list[nn.Parameter], max_grad_norm: float
    ) -> None:
        deepspeed = join_processes(config, device)
        super().__init__()
        self.model: Any = model
        self.parameters = parameters
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        # On the CPU the fused step is fast and needs no compiler.
        fused = True if config.offload != "none" else None
        optimizer = torch.optim.AdamW(parameters, weight_decay=0.0, fused=fused)
        self._groups: list[dict[str, Any]] = torch.optim.AdamW(parameters, weight_decay=0.0).state_dict()["param_groups"]
        self._steps = 0
        settings = zero_settings(config, max_grad_norm)
        if config.stage == 3 and not any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
            partition(deepspeed, settings, device, model)
        self._engine: Any
        self._engine, *_ = deepspeed.initialize(model=Scaled(model, self.world_size), optimizer=optimizer, config=settings)
        if self._engine.world_size != world_size():
            raise InfrastructureError(
                f"DeepSpeed sees {self._engine.world_size} processes where there are {world_size()}: each would train alone"
            )
        self._stage = config.stage
        if config.stage == 3:
            start_passes_at_the_decoder(self._engine.optimizer.parameter_offload, model)

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a scalar."""
        self._engine.backward(self._engine(loss))

    def step(self, learning_rate: float) -> float:
        """Take an optimiser step. Returns the norm of the gradient before clipping.

        Raises:
            FloatingPointError: the gradient is not finite.
        """
        for group in [*self._engine.optimizer.param_groups, *self._groups]:
            group["lr"] = learning_rate
        self._engine.step()
        norm = float(self._engine.get_global_grad_norm())
        if not torch.isfinite(torch.tensor(norm)):
            raise FloatingPointError(f"the norm of the gradient is {norm}, so it cannot be clipped")
        self._steps += 1
        return norm

    def weights(self) -> dict[str, Tensor] | None:
        """On the first process the trained weights by name, if the model holds only a part of them; else None."""
        if self._stage != 3:
            return None
        from deepspeed.utils import safe_get_full_fp32_param

        whole = {}
        for parameter in self.parameters:
            tensor = safe_get_full_fp32_param(parameter)
            if self.rank == 0:
                whole[self._names[id(parameter)]] = tensor.detach().to("cpu", parameter.dtype, copy=True)
        return whole

    @torch.no_grad()
    def set_weights(self, weights: dict[str, Tensor]) -> None:
        """Give all trained parameters other values, by name; ZeRO's own copy of them too."""
        from deepspeed.runtime.zero import GatheredParameters

        for parameter in self.parameters:
            value = weights[self._names[id(parameter)]]
            if self._stage == 2:
                parameter.copy_(value)
                continue
            with GatheredParameters(parameter, modifier_rank=0):
                if self.rank == 0:
                    parameter.copy_(value)
        self._engine.optimizer.refresh_fp32_params()

    def save(self, path: Path) -> None:
        """Write the optimiser's state on the first process, in the format of `LocalBackend`."""
        from deepspeed.utils import safe_get_full_optimizer_state

        state: dict[int, dict[str, Tensor]] = {}
        for number, parameter in enumerate(self.parameters if self._steps else []):
            moments = {name: safe_get_full_optimizer_state(parameter, name) for name in MOMENTS}
            if self.rank == 0:
                state[number] = {"step": torch.tensor(float(self._steps))}
                state[number] |= {name: tensor.detach().to("cpu", copy=True) for name, tensor in moments.items()}
        if self.rank == 0:
            torch.save({"state": state, "param_groups": self._groups}, path)

    def load(self, path: Path) -> None:
        """Read what `save`, or a `LocalBackend`, wrote."""
        stored = torch.load(path, weights_only=True, map_location="cpu")["state"]
        if not stored and not self._steps:
            return
        self._steps = int(stored[0]["step"]) if stored else 0
        zero = self._engine.optimizer
        flat = zero.fp32_partitioned_groups_flat if self._stage == 3 else zero.single_partition_of_fp32_groups
        for part in flat:
            # In place after the first step: ZeRO-2 keeps views of the moments.
            moments = zero.optimizer.state[part] or {name: torch.zeros_like(part, requires_grad=False) for name in MOMENTS}
            for name in MOMENTS:
                moments[name].zero_()
            zero.optimizer.state[part] = {**moments, "step": torch.tensor(float(self._steps))}
        if self._stage == 2:
            zero._lazy_init_hp_params_optimizer_state()
        if not stored:
            return
        for number, parameter in enumerate(self.parameters):
            for name in MOMENTS:
                self._set_moment(parameter, name, stored[number][name])

    def _set_moment(self, parameter: Any, name: str, value: Tensor) -> None:
        from deepspeed.utils import safe_set_full_optimizer_state, safe_set_local_optimizer_state

        if self._stage == 2:
            safe_set_full_optimizer_state(parameter, value, name)
            return
        # DeepSpeed cannot set a whole tensor whose size does not divide by the number of processes.
        size = parameter.ds_tensor.numel()
        padded = nn.functional.pad(value.flatten(), (0, size * self.world_size - value.numel()))
        safe_set_local_optimizer_state(parameter, padded[self.rank * size : (self.rank + 1) * size], name)
