"""Attention for a pass over many conversations whose new tokens form one sequence.

Registered with transformers under a name of its own; without a `RaggedCache` a model computes as with "sdpa".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from tracewheel.core.errors import InputError

if TYPE_CHECKING:
    import torch

    from tracewheel.engines.ragged_cache import RaggedCache

NAME = "tracewheel_ragged"


def use_ragged_attention(model: Any) -> None:
    """Let a model of transformers take a cache as `ragged`.

    Raises:
        InputError: the model does not let its attention be replaced.
    """
    AttentionInterface.register(NAME, ragged_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
    if model.config.get_text_config()._attn_implementation != NAME:
        raise InputError(
            f"{type(model).__name__} does not let its attention be replaced, which the engine needs: use another base"
        )


def ragged_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    ragged: RaggedCache | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Called by transformers: `query` [1, heads, N, D], `key` and `value` [1, H, N, D]; returns [1, N, heads, D]."""
    if ragged is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    return ragged.attend(module.layer_idx, query[0], key[0], value[0], options.get("scaling"))[None], None
