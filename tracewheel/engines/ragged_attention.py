"""The attention of a pass over many conversations whose new tokens lie one behind the other in one row.

Registered with transformers under a name of its own; a model that is called without a `RaggedCache`
computes as it does with "sdpa".
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
    """Make a model of transformers able to take `ragged=` a cache.

    Raises:
        InputError: the model computes its attention in its own way only.
    """
    AttentionInterface.register(NAME, ragged_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    model.set_attn_implementation(NAME)
    if model.config.get_text_config()._attn_implementation != NAME:
        raise InputError(
            f"{type(model).__name__} takes no other attention than its own, and the engine needs one: use another base"
        )


def ragged_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    ragged: RaggedCache | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers calls it: `query` [1, heads, N, D], `key` and `value` [1, H, N, D]; returns [1, N, heads, D]."""
    if ragged is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)
    return ragged.attend(module.layer_idx, query[0], key[0], value[0], scaling)[None], None
