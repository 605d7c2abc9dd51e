"""The forward pass of Llama-like models in few operations.

A small model on a CPU spends most of a pass on starting operations. Here queries, keys and values come from one
product, gate and up from another; norms are folded into the following product and residuals into the preceding one.
That is about half of the operations of the model's own layers, with the same numbers up to rounding, which is checked
whenever an engine is made (`model_check.py`).

Legend: N tokens of a pass, C hidden size, H key-value heads, G query heads that share one, D head dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from tracewheel.engines.ragged_cache import RaggedCache

BODIES = {"LlamaModel", "Qwen2Model", "Qwen3Model"}


@dataclass(frozen=True)
class _Layer:
    """Weights [in, out], with the preceding norm's gain folded in; biases [out] or None."""

    into_attention: torch.Tensor
    into_attention_bias: torch.Tensor | None
    head_norm: torch.Tensor | None  # [H * G + H, D], of queries and keys
    out_of_attention: torch.Tensor
    into_mlp: torch.Tensor
    out_of_mlp: torch.Tensor


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
        """Whether this decoder supports the model and is faster: plain layers, in float32 on a CPU."""
        body = model.base_model
        config = model.config
        return (
            type(body).__name__ in BODIES
            and model.device.type == "cpu"
            and model.dtype == torch.float32
            and config.hidden_act == "silu"
            and not getattr(config, "mlp_bias", False)
            and all(type(module) is torch.nn.Linear for name, module in body.named_modules() if name.endswith("_proj"))
            and all(layer.self_attn.o_proj.bias is None for layer in body.layers)
        )

    def __call__(self, ids: torch.Tensor, positions: torch.Tensor, cache: RaggedCache) -> torch.Tensor:
        """The last hidden states [N, C] of `ids` [N] at `positions` [1, N], whose pass the cache has begun."""
        hidden = self._body.embed_tokens(ids)
        cosine, sine = self._body.rotary_emb(hidden[None], positions)
        half = self._dim // 2
        cosine = cosine[0, :, None]
        sine = torch.cat([-sine[0, :, None, :half], sine[0, :, None, half:]], dim=-1)
        for index, layer in enumerate(self._layers):
            made = self._normed(hidden) @ layer.into_attention
            if layer.into_attention_bias is not None:
                made += layer.into_attention_bias
            heads = made.view(len(ids), -1, self._dim)
            rotated, value = heads[:, : self._rotated_heads], heads[:, self._rotated_heads :]
            if layer.head_norm is not None:
                rotated = self._normed(rotated) * layer.head_norm
            rotated = torch.addcmul(rotated * cosine, rotated.roll(half, -1), sine)
            query, key = rotated[:, : -self._key_heads], rotated[:, -self._key_heads :]
            seen = cache.attend(index, query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1), self._scale)
            hidden = torch.addmm(hidden, seen.flatten(1), layer.out_of_attention)
            gate, up = (self._normed(hidden) @ layer.into_mlp).chunk(2, dim=-1)
            hidden = torch.addmm(hidden, functional.silu(gate).mul_(up), layer.out_of_mlp)
        return self._body.norm(hidden)

    def _normed(self, hidden: torch.Tensor) -> torch.Tensor:
        """RMS norm (Zhang and Sennrich 2019) along the last dimension, without the gain."""
        return functional.rms_norm(hidden, hidden.shape[-1:], eps=self._epsilon)

    def _layer(self, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        biases = [projection.bias for projection in projections]
        norms = None
        if hasattr(attention, "q_norm"):
            query_heads = self._rotated_heads - self._key_heads
            norms = torch.cat(
                [attention.q_norm.weight.expand(query_heads, -1), attention.k_norm.weight.expand(self._key_heads, -1)]
            )
        return _Layer(
            _with_gain(layer.input_layernorm, *projections),
            None if biases[0] is None else torch.cat(biases),
            norms,
            attention.o_proj.weight.T,
            _with_gain(layer.post_attention_layernorm, mlp.gate_proj, mlp.up_proj),
            mlp.down_proj.weight.T,
        )


def _with_gain(norm: Any, *projections: Any) -> torch.Tensor:
    """One weight [in, out] for several projections of a norm's output, with the norm's gain folded in."""
    return (torch.cat([projection.weight for projection in projections]) * norm.weight).T
