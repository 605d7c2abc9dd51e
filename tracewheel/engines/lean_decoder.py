"""The forward pass of Llama-like models in few operations.

A small model spends most of a pass on starting operations, on a CPU as on a GPU. Here queries, keys and values come from one
product, gate and up from another, each with its adapters; residuals are folded into the preceding product and, in
float32, norms' gains into the following one. That is about half of the operations of the model's own layers, with the
same numbers up to rounding, which is checked whenever an engine is made (`model_check.py`).

Legend: N tokens of a pass, C hidden size, H key-value heads, G query heads that share one, D head dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from tracewheel.engines.products import Product
from tracewheel.policy.lora_products import plain_adapter

if TYPE_CHECKING:
    from tracewheel.engines.ragged_cache import RaggedCache


def supported(module: Any) -> bool:
    """Whether a module is a plain linear layer, perhaps with one active plain LoRA adapter that is not merged."""
    return type(module) is torch.nn.Linear or plain_adapter(module) is not None


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
        if name := plain_adapter(module):
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


BODIES = {"LlamaModel", "Qwen2Model", "Qwen3Model"}
DTYPES = {torch.float32, torch.bfloat16}
DEVICES = {"cpu", "cuda"}
COPY_BYTES = 4 << 30  # the most bytes of layers that are copied


@dataclass(frozen=True)
class _Layer:
    """Projections, and gains of the norms before them: None where they are folded into the projection."""

    attention_gain: torch.Tensor | None
    into_attention: Projection
    head_norm: torch.Tensor | None  # [H * G + H, D], of queries and keys
    out_of_attention: Projection
    mlp_gain: torch.Tensor | None
    into_mlp: Projection
    out_of_mlp: Projection


class LeanDecoder:
    """The body of a causal language model, over a `RaggedCache`. It holds copies of the layers' weights.

    Args:
        model: A model that `suits`.
    """

    def __init__(self, model: Any) -> None:
        body, config = model.base_model, model.config
        self._body = body
        self._epsilon = config.rms_norm_eps
        attention = body.layers[0].self_attn
        self._dim, self._scale = attention.head_dim, attention.scaling
        self._key_heads = config.num_key_value_heads
        self._rotated_heads = config.num_attention_heads + self._key_heads
        with torch.no_grad():
            self._layers = [self._layer(layer) for layer in body.layers]

    @staticmethod
    def suits(model: Any) -> bool:
        """Whether this decoder supports the model and is faster: plain layers of at most `COPY_BYTES`."""
        body = model.base_model
        config = model.config
        if type(body).__name__ not in BODIES or model.device.type not in DEVICES or model.dtype not in DTYPES:
            return False
        layers = [parameter for layer in body.layers for parameter in layer.parameters()]
        return (
            config.hidden_act == "silu"
            and not getattr(config, "mlp_bias", False)
            and all(supported(module) for name, module in body.named_modules() if name.endswith("_proj"))
            and all(type(module).__name__.endswith("RMSNorm") for name, module in body.named_modules() if name.endswith("norm"))
            and all(layer.self_attn.o_proj.bias is None for layer in body.layers)
            and sum(parameter.nbytes for parameter in layers) <= COPY_BYTES
        )

    def __call__(self, ids: torch.Tensor, positions: torch.Tensor, cache: RaggedCache) -> torch.Tensor:
        """The last hidden states [N, C] of `ids` [N] at `positions` [1, N], whose pass the cache has begun."""
        hidden = self._body.embed_tokens(ids)
        cosine, sine = self._body.rotary_emb(hidden[None], positions)
        half = self._dim // 2
        cosine = cosine[0, :, None]
        sine = torch.cat([-sine[0, :, None, :half], sine[0, :, None, half:]], dim=-1)
        for index, layer in enumerate(self._layers):
            made = layer.into_attention(self._normed(hidden, layer.attention_gain))
            heads = made.view(len(ids), -1, self._dim)
            rotated, value = heads[:, : self._rotated_heads], heads[:, self._rotated_heads :]
            if layer.head_norm is not None:
                rotated = self._normed(rotated) * layer.head_norm
            rotated = torch.addcmul(rotated * cosine, rotated.roll(half, -1), sine)
            query, key = rotated[:, : -self._key_heads], rotated[:, -self._key_heads :]
            seen = cache.attend(index, query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), self._scale)
            hidden = layer.out_of_attention.plus(seen.flatten(1), hidden)
            gate, up = layer.into_mlp(self._normed(hidden, layer.mlp_gain)).chunk(2, dim=-1)
            hidden = layer.out_of_mlp.plus(functional.silu(gate).mul_(up), hidden)
        return self._body.norm(hidden)

    def _normed(self, hidden: torch.Tensor, gain: torch.Tensor | None = None) -> torch.Tensor:
        """RMS norm (Zhang and Sennrich 2019) along the last dimension."""
        return functional.rms_norm(hidden, hidden.shape[-1:], gain, self._epsilon)

    def _layer(self, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        gains = (layer.input_layernorm.weight.detach(), layer.post_attention_layernorm.weight.detach())
        # In half precision folding a gain into a weight would round the weight once more.
        folded = gains[0].dtype == torch.float32
        norms = None
        if hasattr(attention, "q_norm"):
            query_heads = self._rotated_heads - self._key_heads
            norms = torch.cat(
                [attention.q_norm.weight.expand(query_heads, -1), attention.k_norm.weight.expand(self._key_heads, -1)]
            )
        kept, fused = ((None, None), gains) if folded else (gains, (None, None))
        return _Layer(
            kept[0],
            Projection((attention.q_proj, attention.k_proj, attention.v_proj), fused[0]),
            norms,
            Projection((attention.o_proj,)),
            kept[1],
            Projection((mlp.gate_proj, mlp.up_proj), fused[1]),
            Projection((mlp.down_proj,)),
        )
