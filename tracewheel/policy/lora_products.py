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
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, low, weight, down, up = ctx.saved_tensors
        rows, given = states.reshape(-1, states.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
        of_low = given @ (up * ctx.scaling).to(rows.dtype)
        of_states = None
        if ctx.needs_input_grad[0]:
            of_states = (given @ weight).addmm_(of_low, down.to(rows.dtype)).view_as(states)
        return of_states, None, None, (of_low.T @ rows).float(), (given.T @ low).float() * ctx.scaling, None


def fuse_adapters(model: Any) -> Any:
    """Let the plain LoRA layers of a PEFT model compute in half precision where their base does; returns the model.

    What is not plain stays PEFT's: a base in float32 or partitioned by ZeRO, dropout, DoRA, several adapters at once.
    """
    from peft.tuners.lora import Linear

    for module in model.modules():
        if type(module) is Linear and type(module.get_base_layer()) is torch.nn.Linear:
            module.forward = functools.partial(_forward, module)
    return model


def _forward(module: Any, states: Tensor, *given: Any, **named: Any) -> Tensor:
    factors = _factors(module, states) if not (given or named) else None
    if factors is None:
        theirs: Tensor = type(module).forward(module, states, *given, **named)
        return theirs
    base = module.get_base_layer()
    made: Tensor = _AdaptedLinear.apply(states, base.weight, base.bias, *factors)  # type: ignore[no-untyped-call]
    return made


def _factors(module: Any, states: Tensor) -> tuple[Tensor, Tensor, float] | None:
    """The active adapter's factors [R, C] and [F, R] and its scaling; None where PEFT computes the layer."""
    active = [name for name in module.active_adapters if name in module.lora_A]
    weight = module.get_base_layer().weight
    if (
        len(active) != 1
        or module.disable_adapters
        or module.merged
        or active[0] in module.lora_variant
        or module.lora_bias[active[0]]
        or (module.training and type(module.lora_dropout[active[0]]) is not torch.nn.Identity)
        or weight.requires_grad
        or states.dtype not in (torch.bfloat16, torch.float16)
        or weight.dtype != states.dtype
    ):
        return None
    down, up = module.lora_A[active[0]].weight, module.lora_B[active[0]].weight
    if down.dtype != torch.float32 or any(hasattr(each, "ds_id") for each in (weight, down, up)):
        return None
    return down, up, module.scaling[active[0]]
