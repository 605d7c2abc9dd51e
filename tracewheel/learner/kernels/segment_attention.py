"""Attention within the segments of a packed row, for transformers models.

Registered as the attention "tracewheel". If the model's body gets a `plan`, each segment attends to itself and to
its `seen` segments; otherwise it is transformers' "sdpa". The mask is block-diagonal (a tree with shared beginnings),
but no [N, N] mask is built: on the CPU each segment is one call, on a GPU in half precision all are one call of
FlashAttention with variable lengths (Dao 2023, arXiv:2307.08691), whose causal mask is aligned to the ends of query
and key.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from tracewheel.core.errors import InputError
from tracewheel.learner.kernels.packing import AttentionPlan, Segment, rows_at

NAME = "tracewheel"


def segment_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    plan: AttentionPlan | None = None,
    **arguments: Any,
) -> tuple[Tensor, None]:
    """`query` [1, heads, N, D], `key` and `value` [1, key heads, N, D]; returns [1, N, heads, D].

    Raises:
        InputError: the layer's attention window is shorter than the longest trajectory, or it has sinks.
    """
    if plan is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **arguments)
    window = arguments.get("sliding_window")
    if window is not None and plan.longest_seen > window:
        raise InputError(
            f"a trajectory is longer than the model's attention window of {window} tokens, which packing ignores: "
            "set learner.layout to 'padded'"
        )
    if arguments.get("s_aux") is not None:
        raise InputError("the model's attention has sinks, which packing ignores: set learner.layout to 'padded'")
    if query.is_cuda and query.dtype in (torch.float16, torch.bfloat16) and not dropout:
        return _variable_length(query, key, value, scaling, plan), None
    pieces = [_attend(query, key, value, dropout, scaling, segment) for segment in plan.segments]
    return torch.cat(pieces, dim=2).transpose(1, 2).contiguous(), None


def _attend(query: Tensor, key: Tensor, value: Tensor, dropout: float, scaling: float | None, segment: Segment) -> Tensor:
    own = slice(segment.start, segment.stop)
    mask = None
    if segment.seen:
        places = [slice(start, stop) for start, stop in segment.seen] + [own]
        key, value = (torch.cat([heads[:, :, place] for place in places], dim=2) for heads in (key, value))
        everything = torch.ones(segment.length, segment.seen_length, dtype=torch.bool, device=query.device)
        mask = everything.tril(segment.seen_length - segment.length)
    else:
        key, value = key[:, :, own], value[:, :, own]
    return scaled_dot_product_attention(
        query[:, :, own],
        key,
        value,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=mask is None,
        scale=scaling,
        enable_gqa=key.shape[1] != query.shape[1],
    )


def _variable_length(query: Tensor, key: Tensor, value: Tensor, scaling: float | None, plan: AttentionPlan) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    def keys(heads: Tensor) -> Tensor:
        """[K, key heads, D]."""
        tokens = heads[0].transpose(0, 1)
        return tokens.contiguous() if plan.order is None else rows_at(tokens.flatten(1), plan.order).view(-1, *tokens.shape[1:])

    attended = varlen_attn(
        query[0].transpose(0, 1).contiguous(),
        keys(key),
        keys(value),
        plan.ends,
        plan.seen_ends,
        plan.longest,
        plan.longest_seen,
        scale=scaling,
        window_size=(-1, 0),
        enable_gqa=key.shape[1] != query.shape[1],
    )
    assert isinstance(attended, Tensor)
    return attended.unsqueeze(0)


AttentionInterface.register(NAME, segment_attention)
AttentionMaskInterface.register(NAME, sdpa_mask)
