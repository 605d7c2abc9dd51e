"""Attention of a packed row as one call of variable lengths, as on a GPU, beside a call a segment."""

import pytest
import torch
from torch.nn.attention import varlen
from torch.nn.functional import scaled_dot_product_attention

from tracewheel.learner.kernels import segment_attention as attention
from tracewheel.learner.kernels.packing import AttentionPlan, pack

TOKENS, HEADS, KEY_HEADS, WIDTH = 48, 4, 2, 8


def by_sequence(query, key, value, ends, key_ends, longest, longest_key, *, scale, window_size, enable_gqa):
    """What `varlen_attn` promises, on the CPU: each sequence by itself, causal, aligned to the ends of query and key."""
    assert window_size == (-1, 0) and ends.dtype == key_ends.dtype == torch.int32
    assert longest == ends.diff().max() and longest_key == key_ends.diff().max()
    pieces = []
    for start, stop, first, last in zip(ends, ends[1:], key_ends, key_ends[1:], strict=False):
        q, k, v = (heads[part].transpose(0, 1)[None] for heads, part in
                   ((query, slice(start, stop)), (key, slice(first, last)), (value, slice(first, last))))  # fmt: skip
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=enable_gqa)
        pieces.append(out[0].transpose(0, 1))
    return torch.cat(pieces)


@pytest.fixture
def forked():
    """One trajectory of four turns, each of which cuts the thinking of the one before."""
    before = torch.arange(-1, TOKENS - 1)[None].clone()
    for turn in range(1, 4):
        before[0, turn * 12] = turn * 12 - 5
    return torch.arange(TOKENS)[None], torch.ones(1, TOKENS, dtype=torch.long), before


def both(packed, monkeypatch):
    """Outputs and gradients of the two ways."""
    monkeypatch.setattr(varlen, "varlen_attn", by_sequence)
    draw = torch.Generator().manual_seed(0)
    shapes = [(1, heads, packed.token_ids.numel(), WIDTH) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    states = [torch.randn(shape, generator=draw, dtype=torch.float64, requires_grad=True) for shape in shapes]
    found = []
    for out in (
        attention.segment_attention(torch.nn.Module(), *states, None, plan=packed.plan)[0],
        attention._variable_length(*states, None, packed.plan),
    ):
        weights = torch.linspace(-1.0, 1.0, out.numel(), dtype=out.dtype).view_as(out)
        found.append([out.detach(), *torch.autograd.grad((out * weights).sum(), states)])
    return found


@pytest.mark.parametrize("share_prefixes", [False, True])
def test_one_call_gives_what_a_call_a_segment_gives(share_prefixes, forked, monkeypatch):
    packed = pack(*forked, share_prefixes=share_prefixes)
    assert packed.plan.order is not None and len(packed.plan.order) > TOKENS
    for one, other in zip(*both(packed, monkeypatch), strict=True):
        assert torch.allclose(one, other, rtol=0.0, atol=1e-12)


def test_rows_that_share_nothing_read_their_keys_as_they_lie(forked, monkeypatch):
    ids, mask, _ = forked
    packed = pack(ids.view(2, -1), mask.view(2, -1), share_prefixes=False)
    assert packed.plan.order is None and packed.plan.seen_ends.tolist() == [0, 24, 48]
    for one, other in zip(*both(packed, monkeypatch), strict=True):
        assert torch.allclose(one, other, rtol=0.0, atol=1e-12)


def test_no_layer_works_out_where_its_keys_are(forked, monkeypatch):
    packed = pack(*forked, share_prefixes=False)
    made = []
    monkeypatch.setattr(AttentionPlan, "__init__", lambda *given: made.append(given))
    monkeypatch.setattr(torch, "tensor", lambda *given, **more: made.append(given))
    monkeypatch.setattr(torch, "arange", lambda *given, **more: made.append(given))
    monkeypatch.setattr(varlen, "varlen_attn", lambda query, *given, **more: query)
    states = [torch.zeros(1, heads, TOKENS, WIDTH) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    attention._variable_length(*states, None, packed.plan)
    assert made == []
