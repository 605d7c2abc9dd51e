"""Scores under an output embedding against the plain log-softmax over all logits."""

import pytest
import torch

from tracewheel.learner.kernels import fused_logprobs
from tracewheel.learner.kernels.fused_logprobs import OutputEmbedding, target_logprobs

N, H, V = 13, 5, 31


@pytest.fixture(params=[7, 31, 1000], ids=lambda columns: f"{columns} columns")
def columns(request, monkeypatch):
    monkeypatch.setattr(fused_logprobs, "COLUMNS", {"cpu": request.param})


def problem(dtype=torch.float64, spread=3.0, with_bias=False):
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(N, H, dtype=torch.float64, generator=generator).to(dtype)
    weight = (torch.randn(V, H, dtype=torch.float64, generator=generator) * spread).to(dtype)
    bias = torch.randn(V, dtype=torch.float64, generator=generator).to(dtype) if with_bias else None
    targets = torch.randint(0, V, (N,), generator=generator)
    factor = torch.rand(N, dtype=torch.float64, generator=generator) + 0.5
    if dtype is not torch.float64:
        factor = factor.float()
    return states, weight, bias, targets, factor


def plain(states, weight, bias, targets, factor):
    logits = (states @ weight.T + (0 if bias is None else bias)) * factor.unsqueeze(-1)
    log_softmax = logits.log_softmax(-1)
    return log_softmax.gather(-1, targets.unsqueeze(-1)).squeeze(-1), -(log_softmax.exp() * log_softmax).sum(-1)


@pytest.mark.parametrize("chunk", [4, 100])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("trains_weight", [False, True])
@pytest.mark.parametrize("entropy_gradient", [False, True])
def test_values_and_gradients_equal_the_log_softmax(columns, chunk, with_bias, trains_weight, entropy_gradient):
    states, weight, *rest = problem(with_bias=with_bias)
    leaves = [states.requires_grad_(), *([weight.requires_grad_()] if trains_weight else [])]
    bias, *others = rest
    embedding = OutputEmbedding(weight, bias)
    ours = target_logprobs(states, embedding, *others, chunk=chunk, entropy_gradient=entropy_gradient)
    theirs = plain(states, weight, *rest)
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=0, atol=1e-12)
    assert ours[1].requires_grad == entropy_gradient
    by_logprob, by_entropy = torch.linspace(-2, 1, N).double(), torch.linspace(1, 3, N).double()

    def loss(logprobs, entropy):
        return (logprobs * by_logprob).sum() + ((entropy * by_entropy).sum() if entropy_gradient else 0)

    for our, their in zip(torch.autograd.grad(loss(*ours), leaves), torch.autograd.grad(loss(*theirs), leaves), strict=True):
        assert their.abs().max() > 0.1
        torch.testing.assert_close(our, their, rtol=0, atol=1e-11)


def test_two_tokens_by_hand():
    """From logits (0, log 3) p = (1/4, 3/4), so log p[0] = -log 4, and its slope is W[0] - (W[0] + 3 W[1]) / 4."""
    weight = torch.tensor([[0.0], [1.0]])
    states = torch.tensor([[torch.log(torch.tensor(3.0))]], requires_grad=True)
    logprobs, entropy = target_logprobs(states, OutputEmbedding(weight), torch.tensor([0]), torch.ones(1))
    assert logprobs.item() == pytest.approx(-1.386294, abs=1e-6)
    assert entropy.item() == pytest.approx(0.562335, abs=1e-6)
    logprobs.sum().backward()
    assert states.grad.item() == pytest.approx(-0.75, abs=1e-6)


def test_overflowing_logits_stay_finite(columns):
    states, weight, bias, targets, factor = problem(torch.float32, spread=500.0)
    states.requires_grad_()
    logprobs, entropy = target_logprobs(states, OutputEmbedding(weight, bias), targets, factor, entropy_gradient=True)
    (logprobs.sum() + entropy.sum()).backward()
    exact = [values.double() if values is not None and values.is_floating_point() else values for values in (states, weight)]
    expected, _ = plain(exact[0].detach(), exact[1], bias, targets, factor.double())
    assert expected.min() < -1000
    torch.testing.assert_close(logprobs.detach().double(), expected, rtol=1e-5, atol=1e-3)
    assert states.grad.isfinite().all() and entropy.isfinite().all()


def test_half_precision_is_summed_in_float32(columns):
    states, weight, bias, targets, factor = problem(torch.bfloat16, spread=0.5)
    states.requires_grad_()
    logprobs, entropy = target_logprobs(states, OutputEmbedding(weight, bias), targets, factor)
    logprobs.sum().backward()
    exact = states.detach().double().requires_grad_()
    expected, expected_entropy = plain(exact, weight.double(), None, targets, factor.double())
    expected.sum().backward()
    assert logprobs.dtype == entropy.dtype == torch.float32 and states.grad.dtype == torch.bfloat16
    assert (logprobs.detach() - expected).abs().max() < 0.03 and (entropy - expected_entropy).abs().max() < 0.03
    assert (states.grad - exact.grad).abs().max() < 0.02 * exact.grad.abs().max()


@pytest.mark.parametrize("entropy_gradient", [False, True])
@pytest.mark.parametrize("trains_weight", [False, True])
def test_a_sure_model_with_a_real_vocabulary_is_scored_in_half_precision_as_in_float32(trains_weight, entropy_gradient):
    """Logits about 20, where bfloat16 numbers are 0.125 apart; the states and the weight are the same bfloat16 numbers."""
    generator = torch.Generator().manual_seed(1)
    tokens, hidden, vocabulary = 96, 64, 49_152
    weight = (torch.randn(vocabulary, hidden, generator=generator) * 0.3).bfloat16()
    likely = torch.randint(0, vocabulary, (tokens,), generator=generator)
    direction = weight[likely].float() / weight[likely].float().square().sum(-1, keepdim=True)
    states = (20.0 * direction + 0.1 * torch.randn(tokens, hidden, generator=generator)).bfloat16()
    targets = torch.where(torch.arange(tokens) % 8 == 0, (likely + 1) % vocabulary, likely)
    factor = torch.where(torch.arange(tokens) % 2 == 0, 1.0, 0.8)

    def scored(states, weight, score):
        leaves = [states.requires_grad_(), *([weight.requires_grad_()] if trains_weight else [])]
        logprobs, entropy = score(states, weight)
        loss = (logprobs * torch.linspace(-1, 2, tokens)).sum() + (0.5 * entropy.sum() if entropy_gradient else 0)
        return logprobs.detach(), entropy.detach(), torch.autograd.grad(loss, leaves)

    def ours(states, weight):
        embedding = OutputEmbedding(weight)
        return target_logprobs(states, embedding, targets, factor, chunk=64, entropy_gradient=entropy_gradient)

    half = scored(states.clone(), weight.clone(), ours)
    whole = scored(states.float(), weight.float(), lambda states, weight: plain(states, weight, None, targets, factor))
    assert whole[0][targets == likely].mean() > -0.2 and whole[0][targets != likely].mean() < -5
    for our, their in zip(half[:2], whole[:2], strict=True):
        assert (our - their).abs().mean() < 0.0005 and (our - their).abs().max() < 0.003
    for our, their in zip(half[2], whole[2], strict=True):
        assert our.dtype == torch.bfloat16
        our = our.float()
        assert torch.cosine_similarity(our.flatten(), their.flatten(), dim=0) > 0.9999
        assert abs(our.norm() / their.norm() - 1) < 0.002
    # A sure token's gradient is what is left of W[target] - mean: each must be right by itself.
    per_token = torch.cosine_similarity(half[2][0].float(), whole[2][0], dim=-1)
    assert per_token.min() > 0.999


def test_no_tokens_give_empty_results_and_zero_gradients():
    states, weight, _, targets, factor = problem()
    none = states[:0].requires_grad_()
    logprobs, entropy = target_logprobs(none, OutputEmbedding(weight.requires_grad_()), targets[:0], factor[:0])
    logprobs.sum().backward()
    assert logprobs.shape == entropy.shape == (0,) and not weight.grad.any()
