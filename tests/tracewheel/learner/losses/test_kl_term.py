"""The KL term: values by hand, and gradients equal to those of the divergence."""

import math

import pytest
import torch

from tracewheel.config import KlConfig
from tracewheel.learner.losses.ratios import adapted_weight, k3, kl_term


def term(logprobs, reference, behaviour=None, **settings):
    mask = torch.ones(1, len(logprobs))
    given = [torch.tensor([[math.log(p) for p in each]]) for each in (logprobs, reference, behaviour or logprobs)]
    return kl_term(KlConfig(**settings), *given, mask)[0].tolist()


def test_estimators_by_hand():
    """The policy gives 1 and 1/4 to what the reference gives 1/2."""
    log2 = math.log(2)
    plain = {"corrected": False}
    assert term([1, 0.25], [0.5, 0.5], estimator="k1", **plain) == pytest.approx([log2, -log2])
    assert term([1, 0.25], [0.5, 0.5], estimator="k2", **plain) == pytest.approx([log2**2 / 2] * 2)
    assert term([1, 0.25], [0.5, 0.5], estimator="k3", **plain) == pytest.approx([0.5 - 1 + log2, 2 - 1 - log2])


def test_correction_multiplies_by_the_behaviour_ratio():
    plain = term([0.5, 0.25], [0.25, 0.25], estimator="k3", corrected=False)
    corrected = term([0.5, 0.25], [0.25, 0.25], [0.25, 0.5], estimator="k3")
    assert corrected == pytest.approx([2 * plain[0], 0.5 * plain[1]])


def test_off_the_mask_it_is_zero():
    values = torch.tensor([[-1.0, math.nan, -math.inf]])
    assert kl_term(KlConfig(), values, values * 2, values, torch.tensor([[1, 0, 0]]))[0, 1:].tolist() == [0.0, 0.0]


REFERENCE = torch.tensor([0.2, 0.5, 0.3], dtype=torch.double).log()
POLICY = torch.tensor([0.3, -0.4, 1.0], dtype=torch.double)
OTHER = torch.tensor([0.1, 0.6, 0.3], dtype=torch.double).log()


def true_gradient():
    logits = POLICY.clone().requires_grad_()
    policy = torch.log_softmax(logits, 0)
    (policy.exp() * (policy - REFERENCE)).sum().backward()
    return logits.grad


def expected_gradient(behaviour, **settings):
    """The gradient of the term, in the mean over tokens that the behaviour policy samples."""
    logits = POLICY.clone().requires_grad_()
    policy = torch.log_softmax(logits, 0)
    behaviour = policy.detach() if behaviour is None else behaviour
    one = torch.ones(1, 3)
    terms = kl_term(KlConfig(**settings), policy[None], REFERENCE[None], behaviour[None], one)
    (behaviour.exp() * terms[0]).sum().backward()
    return logits.grad


@pytest.mark.parametrize("behaviour", [None, OTHER], ids=["on-policy", "off-policy"])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_corrected_terms_have_the_gradient_of_the_divergence(estimator, behaviour):
    gradient = expected_gradient(behaviour, estimator=estimator, corrected=True)
    torch.testing.assert_close(gradient, true_gradient(), rtol=0, atol=1e-12)
    assert gradient.abs().max() > 0.05


def test_uncorrected_k1_regularises_nothing():
    """Why `corrected` is the default, and why k1 belongs in the reward otherwise."""
    gradient = expected_gradient(None, estimator="k1", corrected=False)
    assert gradient.abs().max() < 1e-12


def test_one_token_is_neither_the_loss_nor_the_weight():
    """2,000 tokens, one of them 11.26 nats below the reference: the plain K3 has a mean of 38.8, all of it that token's."""
    tokens = 2000
    mask, reference = torch.ones(1, tokens), torch.full((1, tokens), -0.1)
    logprobs = reference.clone()
    logprobs[0, 7] -= 11.26
    behaviour = logprobs.clone()
    logprobs.requires_grad_()
    log_ratio = reference - logprobs.detach()
    assert (log_ratio.exp() - log_ratio - 1).mean().item() == pytest.approx(38.8, abs=0.1)
    for corrected in (True, False):
        term = kl_term(KlConfig(corrected=corrected), logprobs, reference, behaviour, mask)
        (gradient,) = torch.autograd.grad(term.sum(), logprobs)
        assert term.max() < 150 and gradient.abs().max() < 150
    assert k3(logprobs.detach(), reference).mean() < 0.075
    target = KlConfig(target=0.05)
    assert adapted_weight(target, 0.01, 38.8) == adapted_weight(target, 0.01, 0.07) == pytest.approx(0.0102)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_a_token_that_became_likely_is_not_the_loss_either(estimator):
    """From 1e-6 for sampler and reference to 1: a ratio of a million multiplied its divergence."""
    logprobs, rare = torch.tensor([[-1e-3]], requires_grad=True), torch.tensor([[-14.0]])
    term = kl_term(KlConfig(estimator=estimator), logprobs, rare, rare, torch.ones(1, 1))
    (gradient,) = torch.autograd.grad(term.sum(), logprobs)
    assert term.item() < 15_000 and gradient.abs().item() < 15_000
