"""Tokens drawn among those that a grammar allowed: log-probability, entropy and gradient, by hand and beside the plain way."""

from math import log

import numpy as np
import pytest
import torch

from tracewheel.learner.kernels.fused_logprobs import OutputEmbedding, TokenMasks, target_logprobs


def as_bits(allowed):
    """Masks [M, V] of bools as words [M, W]."""
    allowed = np.asarray(allowed)
    padded = np.pad(allowed, ((0, 0), (0, -allowed.shape[1] % 32)))
    return torch.from_numpy(np.packbits(padded, axis=1, bitorder="little").view(np.int32))


def test_by_hand():
    # One hidden number, four tokens with the weights 1, 2, 3 and 4; the third is forbidden, so they share 7.
    states = torch.tensor([[1.0]], requires_grad=True)
    weight = torch.tensor([[log(1)], [log(2)], [log(3)], [log(4)]], requires_grad=True)
    masks = TokenMasks(as_bits([[True, True, False, True]]), torch.tensor([0]))
    logprob, entropy = target_logprobs(states, OutputEmbedding(weight), torch.tensor([1]), torch.ones(1), masks)
    logprob.sum().backward()
    assert logprob.item() == pytest.approx(log(2 / 7))
    assert entropy.item() == pytest.approx(-sum(p * log(p) for p in (1 / 7, 2 / 7, 4 / 7)))
    # d logprob / d logit is 1 - p for the token, -p for the other allowed ones, and 0 for what could not come.
    assert weight.grad.flatten().tolist() == pytest.approx([-1 / 7, 5 / 7, 0.0, -4 / 7])
    assert weight.grad[2].item() == 0.0
    assert states.grad.item() == pytest.approx(log(2) - (2 * log(2) + 4 * log(4)) / 7)


@pytest.mark.parametrize("bias", [False, True])
def test_agrees_with_the_plain_log_softmax_where_some_tokens_were_free(bias):
    torch.manual_seed(0)
    states, weight = torch.randn(9, 8, dtype=torch.float64), torch.randn(2500, 8, dtype=torch.float64)
    added = torch.randn(2500, dtype=torch.float64) if bias else None
    targets, factor = torch.randint(2500, (9,)), torch.rand(9, dtype=torch.float64) + 0.5
    allowed = torch.rand(3, 2500) < 0.1
    numbers = torch.tensor([0, -1, 2, 1, -1, 0, 0, 2, -1])
    allowed[numbers.clamp(min=0), targets] = True
    results = []
    for fused in (True, False):
        inputs = [states.clone().requires_grad_(), weight.clone().requires_grad_()]
        if fused:
            masks = TokenMasks(as_bits(allowed.numpy()), numbers)
            found = target_logprobs(
                inputs[0], OutputEmbedding(inputs[1], added), targets, factor, masks, chunk=4, entropy_gradient=True
            )
        else:
            logits = (inputs[0] @ inputs[1].T + (0.0 if added is None else added)) * factor[:, None]
            hidden = ~allowed[numbers.clamp(min=0)] & (numbers >= 0)[:, None]
            plain = logits.masked_fill(hidden, -1e9).log_softmax(-1)
            found = plain.gather(1, targets[:, None])[:, 0], -(plain.exp() * plain).sum(-1)
        (found[0].sum() + 0.3 * found[1].sum()).backward()
        results.append([*found, *(each.grad for each in inputs)])
    for fused, plain in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-9, atol=1e-12)
