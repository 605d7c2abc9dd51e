"""Several projections of the same states as one product, with their adapters beside it.

An adapter that is not merged (in half precision a merge would round it away) costs two small products for all of
them, instead of six operations for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tracewheel.engines.products import Product


def supported(module: Any) -> bool:
    """Whether a module is a plain linear layer, perhaps with one active plain LoRA adapter that is not merged."""
    if type(module) is torch.nn.Linear:
        return True
    if not hasattr(module, "lora_A"):
        return False
    from peft.tuners.lora import Linear

    active = [name for name in module.active_adapters if name in module.lora_A]
    return (
        type(module) is Linear
        and type(module.get_base_layer()) is torch.nn.Linear
        and len(active) == 1
        and not (module.disable_adapters or module.merged or module.fan_in_fan_out)
        and active[0] not in module.lora_variant
        and not module.lora_bias[active[0]]
    )


class Projection:
    """The outputs of `modules` side by side: [N, in] to [N, out].

    Args:
        modules: Layers that are `supported`, of the same inputs.
        gain: [in], multiplied with the inputs: folded into the weights.
    """

    def __init__(self, modules: Sequence[Any], gain: torch.Tensor | None = None) -> None:
        plain = [module if type(module) is torch.nn.Linear else module.get_base_layer() for module in modules]
        weight = torch.cat([layer.weight.detach() for layer in plain])
        biases = [layer.bias for layer in plain]
        self._product = Product(
            weight if gain is None else weight * gain, None if biases[0] is None else torch.cat(biases).detach()
        )
        self._down, self._up = _adapters(modules, weight.dtype)
        if self._down is not None and gain is not None:
            self._down = self._down * gain[:, None]

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        made = self._product(states)
        return made if self._down is None else made.addmm_(states @ self._down, self._up)

    def plus(self, states: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        """`added` [N, out] plus the outputs, of layers without a bias."""
        made = self._product.plus(states, added)
        return made if self._down is None else made.addmm_(states @ self._down, self._up)


def _adapters(modules: Sequence[Any], dtype: torch.dtype) -> tuple[torch.Tensor | None, torch.Tensor]:
    """The factors [in, ranks] and [ranks, out] of all adapters, the second with their scaling; None if there are none."""
    downs, ups, outputs = [], [], 0
    for module in modules:
        if type(module) is not torch.nn.Linear:
            name = next(name for name in module.active_adapters if name in module.lora_A)
            downs.append(module.lora_A[name].weight.detach())
            ups.append((outputs, module.lora_B[name].weight.detach() * module.scaling[name]))
        outputs += module.out_features
    if not downs:
        return None, torch.empty(0)
    up, rank = torch.zeros(sum(len(down) for down in downs), outputs, device=downs[0].device), 0
    for begin, factor in ups:
        up[rank : rank + factor.shape[1], begin : begin + len(factor)] = factor.T
        rank += factor.shape[1]
    return torch.cat(downs).T.to(dtype).contiguous(), up.to(dtype)
