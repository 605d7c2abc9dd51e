"""LoRA (Hu et al. 2021) on a base in half precision: products in the base's type, master weights in float32.

PEFT casts each adapter's input to float32 and keeps every copy for the backward pass. Here one function does the layer: it
keeps the input as it is, which the projections of a layer share, and the product with the first factor. The factors are
rounded for the products alone, as in `lean_decoder.py`; their gradients and the optimiser are float32.

Legend: N tokens, C inputs, F outputs, R rank.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class _AdaptedLinear(torch.autograd.Function):
    """`states` [..., C] times the frozen `weight` [F, C], plus the adapter `down` [R, C], `up` [F, R]."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None, down: Tensor, up: Tensor, scaling: float
    ) -> Tensor:
        rows = states.reshape(-1, states.shape[-1])
        low = rows @ down.to(rows.dtype).T
        made = functional.linear(rows, weight, bias).addmm_(low, (up * scaling).to(rows.dtype).T)
        ctx.save_for_backward(states, low, weight, down, up)
        ctx.scaling = scaling
        return made.view(*states.shape[:-1], -1)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, low, weight, down, up = ctx.saved_tensors
        rows, given = states.reshape(-1, states.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
        of_low = given @ (up * ctx.scaling).to(rows.dtype)
        of_states = None
        if ctx.needs_input_grad[0]:
            of_states = (given @ weight).addmm_(of_low, down.to(rows.dtype)).view_as(states)
        return of_states, None, None, (of_low.T @ rows).float(), (given.T @ low).float() * ctx.scaling, None


def plain_adapter(module: Any) -> str | None:
    """The one active adapter of a plain LoRA layer over a plain linear one, not merged; None of any other layer."""
    from peft.tuners.lora import Linear

    if type(module) is not Linear or type(module.get_base_layer()) is not torch.nn.Linear:
        return None
    active = [name for name in module.active_adapters if name in module.lora_A]
    if len(active) != 1 or module.disable_adapters or module.merged or module.fan_in_fan_out:
        return None
    return None if active[0] in module.lora_variant or module.lora_bias[active[0]] else active[0]


def fuse_adapters(model: Any) -> Any:
    """Let the plain LoRA layers of a PEFT model compute in half precision where their base does; returns the model.

    What is not plain stays PEFT's: a base in float32 or partitioned by ZeRO, dropout, DoRA, several adapters at once.
    """
    for module in model.modules():
        if hasattr(module, "lora_A"):
            module.forward = functools.partial(_forward, module)
    return model


def _forward(module: Any, states: Tensor, *given: Any, **named: Any) -> Tensor:
    name = plain_adapter(module)
    if name and not (given or named) and _computed_here(module, states, name):
        base, scaling = module.get_base_layer(), module.scaling[name]
        factors = module.lora_A[name].weight, module.lora_B[name].weight
        made: Tensor = _AdaptedLinear.apply(states, base.weight, base.bias, *factors, scaling)
        return made
    theirs: Tensor = type(module).forward(module, states, *given, **named)
    return theirs


def _computed_here(module: Any, states: Tensor, name: str) -> bool:
    base, down = module.get_base_layer().weight, module.lora_A[name].weight
    return (
        states.dtype == base.dtype in (torch.bfloat16, torch.float16)
        and down.dtype == torch.float32
        and not base.requires_grad
        and not (module.training and type(module.lora_dropout[name]) is not torch.nn.Identity)
        and not any(hasattr(each, "ds_id") for each in (base, down, module.lora_B[name].weight))
    )
