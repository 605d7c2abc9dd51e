"""Products with weights that do not change between passes.

On a CPU, oneDNN multiplies up to twice as fast by weights that it has laid out itself; torch
does so only for models that it compiles. Layers of a tiny model are too small for it to matter, and keep torch's own
product, which starts faster.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

PACKED_NUMBERS = 1 << 17  # the smallest weight that is laid out anew
FULL_COPY_BYTES = 1 << 30  # the largest float32 copy of an output embedding
TILE_ROWS = 4096  # rows of a larger one that are in float32 at once


class Product:
    """`x @ weight`, for inference only.

    Args:
        weight: [out, in]; a copy is kept.
        bias: [out] or None.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self._bias = bias
        self._packed: torch.Tensor | None = None
        with torch.inference_mode():
            if packs(weight):
                self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
            else:
                self._weight = weight.T

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """`states` [N, in] times the weight, plus the bias: [N, out]."""
        if self._packed is not None:
            found: torch.Tensor = torch.ops.mkldnn._linear_pointwise(states, self._packed, self._bias, "none", [], "")
            return found
        made = states @ self._weight
        return made if self._bias is None else made.add_(self._bias)

    def plus(self, states: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        """`added` [N, out] plus the product, without the bias."""
        if self._packed is not None:
            found: torch.Tensor = torch.ops.mkldnn._linear_pointwise.binary(states, added, self._packed, None, "add")
            return found
        return torch.addmm(added, states, self._weight)


def packs(weight: torch.Tensor) -> bool:
    """Whether oneDNN lays this weight out anew."""
    return (
        weight.device.type == "cpu"
        and weight.dtype in (torch.float32, torch.bfloat16)
        and weight.numel() >= PACKED_NUMBERS
        and lays_out(weight.dtype)
    )


@functools.cache
def lays_out(dtype: torch.dtype) -> bool:
    """Whether oneDNN lays out weights of this type on this processor; bfloat16 needs more than AVX2."""
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")):
        return False
    try:
        torch.ops.mkldnn._reorder_linear_weight(torch.zeros(16, 16, dtype=dtype))
    except RuntimeError:  # how it says that it cannot
        return False
    return True


class OutputLogits:
    """The logits of last hidden states, in float32 also where the model is in half precision.

    Half precision keeps 8 bits of a logit: around 20 its values are 0.125 apart, and log-probabilities would be off by
    0.05 nats on average. The product of half-precision states and weights is exact to float32, and so are these.

    Args:
        model: A causal language model of transformers. Its output embedding is copied in float32 if that takes at most
            `FULL_COPY_BYTES`, and otherwise converted in tiles at each call.
    """

    def __init__(self, model: Any) -> None:
        head = model.get_output_embeddings()
        self._head = head
        self._product: Product | None = None
        self._plain = type(head) is torch.nn.Linear
        if not self._plain or head.weight.device.type != "cpu" or 4 * head.weight.numel() > FULL_COPY_BYTES:
            return
        if head.weight.dtype != torch.float32 or packs(head.weight):
            bias = None if head.bias is None else head.bias.detach().float()
            self._product = Product(head.weight.detach().float(), bias)

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """The logits [R, V], in float32, of `states` [R, C]."""
        if self._product:
            return self._product(states.float())
        if not self._plain or self._head.weight.dtype == torch.float32:
            plain: torch.Tensor = self._head(states).float()
            return plain
        weight, bias = self._head.weight, self._head.bias
        if weight.is_cuda:
            logits = torch.mm(states, weight.T, out_dtype=torch.float32)
        else:
            states = states.float()
            logits = torch.cat([states @ tile.float().T for tile in weight.split(TILE_ROWS)], dim=1)
        return logits if bias is None else logits + bias
