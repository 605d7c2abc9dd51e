"""Log-ratios of up to 200 nats: finite losses and gradients, and within the bounds those of the plain formulas."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tracewheel.config import (
    CispoConfig,
    ClipConfig,
    GspoConfig,
    KlConfig,
    LikelihoodConfig,
    OffPolicyConfig,
    SapoConfig,
)
from tracewheel.learner.losses.aggregation import StepTotals, aggregate
from tracewheel.learner.losses.policy import PolicyTokens, policy_loss
from tracewheel.learner.losses.ratios import correction_weights, k1, k2, k3, kl_term

SURROGATES = [ClipConfig(), ClipConfig(dual=3.0), CispoConfig(), GspoConfig(), SapoConfig(), LikelihoodConfig()]
AGGREGATIONS = ["token", "sequence", "constant"]
CORRECTIONS = list(itertools.product(["none", "truncate", "mask"], ["token", "sequence", "geometric"]))
ESTIMATORS = ["k1", "k2", "k3"]
GARBAGE = [math.nan, math.inf, -math.inf, 1e30]

logprob = st.one_of(st.floats(-200, 0, width=32), st.sampled_from([0.0, -200.0, -1e-6]))


@st.composite
def problems(draw, sampled):
    """A mask [B, T], and log-probabilities of policy, start, sampler and reference, with garbage off the mask."""
    rows, tokens = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    size = rows * tokens

    def grid(element):
        return torch.tensor(draw(st.lists(element, min_size=size, max_size=size))).view(rows, tokens)

    mask = grid(st.integers(0, 1))
    garbage = grid(st.sampled_from(GARBAGE))
    given_logprobs = [torch.where(mask.bool(), grid(element), garbage) for element in (logprob, logprob, sampled, logprob)]
    advantages = torch.where(mask.bool(), grid(st.floats(-3, 3, width=32)), garbage)
    return mask, given_logprobs, advantages


def is_sound(loss, leaf, mask):
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(leaf.grad).all() and (leaf.grad[mask == 0] == 0).all()


@pytest.mark.parametrize("surrogate", SURROGATES, ids=str)
@settings(max_examples=40)
@given(
    problems(st.one_of(logprob, st.just(-math.inf))),
    st.sampled_from(AGGREGATIONS),
    st.sampled_from(CORRECTIONS),
    st.sampled_from(ESTIMATORS),
    st.booleans(),
)
def test_no_log_ratio_breaks_a_loss_or_a_gradient(surrogate, problem, aggregation, correction, estimator, corrected):
    mask, (logprobs, proximal, behaviour, reference), advantages = problem
    totals = StepTotals(int(mask.sum()), len(mask), length=5)
    off_policy = OffPolicyConfig(proximal="recompute", correction=correction[0], level=correction[1])
    weights = correction_weights(off_policy, proximal, behaviour, mask)
    assert torch.isfinite(weights).all() and (weights[mask == 0] == 0).all()
    if correction[0] != "none":
        assert weights.max() <= off_policy.cap * (1 + 1e-6)
    config = KlConfig(estimator=estimator, corrected=corrected)
    for old in (proximal, behaviour):
        leaf = logprobs.clone().requires_grad_()
        found = policy_loss(surrogate, PolicyTokens(leaf, old, advantages, mask, weights, behaviour), totals, aggregation)
        term = kl_term(config, leaf, reference, old, mask)
        is_sound(found.loss + aggregate(term, mask, aggregation, totals), leaf, mask)
        assert all(map(math.isfinite, (found.diagnostics.ratio_max, found.diagnostics.behaviour_kl)))


# The formulas of the papers without any bound, in double precision, where they still have a gradient.
def plain_clip(ratio, advantages, dual):
    loss = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    return torch.where(advantages < 0, torch.minimum(loss, -dual * advantages), loss) if dual else loss


PLAIN = {
    "clip": (ClipConfig(), lambda ratio, a, p: plain_clip(ratio, a, None)),
    "dual clip": (ClipConfig(dual=3.0), lambda ratio, a, p: plain_clip(ratio, a, 3.0)),
    "cispo": (CispoConfig(), lambda ratio, a, p: -ratio.detach().clamp(max=5.0) * a * p),
    "sapo": (
        SapoConfig(),
        lambda ratio, a, p: -4 * a * torch.where(a > 0, torch.sigmoid(ratio - 1), torch.sigmoid(1.05 * (ratio - 1)) / 1.05),
    ),
    "gspo": (
        GspoConfig(low=0.2, high=0.2),
        lambda ratio, a, p: plain_clip((ratio.log().mean(-1, keepdim=True)).exp().expand_as(ratio), a, None),
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_within_the_bounds_nothing_is_changed(name):
    """Random log-ratios of up to 19 nats against autograd on the plain formula; one advantage a row, as GSPO has."""
    surrogate, formula = PLAIN[name]
    generator = torch.Generator().manual_seed(7)
    for spread in (0.3, 19.0):
        old = -3 * torch.rand(8, 6, generator=generator, dtype=torch.double)
        log_ratio = spread * (2 * torch.rand(8, 6, generator=generator, dtype=torch.double) - 1)
        advantages = torch.randn(8, 1, generator=generator, dtype=torch.double).expand(8, 6)
        ours, theirs = ((old + log_ratio).requires_grad_() for _ in range(2))
        tokens = PolicyTokens(ours, old, advantages, torch.ones(8, 6))
        policy_loss(surrogate, tokens, StepTotals(48, 8), "token").loss.backward()
        (formula((theirs - old).exp(), advantages, theirs).sum() / 48).backward()
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-9, atol=1e-12)


PLAIN_KL = {
    k1: lambda p, q: p - q,
    k2: lambda p, q: 0.5 * (p - q) ** 2,
    k3: lambda p, q: (q - p).exp() - (q - p) - 1,
}


@pytest.mark.parametrize("estimator", PLAIN_KL, ids=lambda function: function.__name__)
def test_a_divergence_keeps_the_slope_of_its_bound(estimator):
    """The reference below (down to 20 nats) and above (up to 5): the plain value and slope. Beyond: those of the bound."""
    inside = torch.tensor([-20.0, -3.0, -0.1, 0.0, 0.1, 4.99], dtype=torch.double)
    policy, plain = (torch.zeros(6, dtype=torch.double, requires_grad=True) for _ in range(2))
    ours, theirs = estimator(policy, inside), PLAIN_KL[estimator](plain, inside)
    torch.testing.assert_close(ours, theirs)
    ours.sum().backward()
    theirs.sum().backward()
    torch.testing.assert_close(policy.grad, plain.grad)
    high = 20.0 if estimator in (k1, k2) else 5.0
    at, beyond = (torch.zeros(2, dtype=torch.double, requires_grad=True) for _ in range(2))
    PLAIN_KL[estimator](at, torch.tensor([-20.0, high], dtype=torch.double)).sum().backward()
    far = estimator(beyond, torch.tensor([-200.0, 200.0], dtype=torch.double))
    far.sum().backward()
    torch.testing.assert_close(beyond.grad, at.grad)
    torch.testing.assert_close(far.detach(), PLAIN_KL[estimator](torch.zeros(2), torch.tensor([-20.0, high])).double())
    assert (beyond.grad != 0).all(), "a policy that strayed too far is still pulled back"


def test_the_correction_of_a_sequence_by_hand():
    """Ratios 4 and 1/2, then one off the mask: the product is 2, the geometric mean the root of 2."""
    ratio, mask = torch.tensor([[4.0, 0.5, 9.0]]), torch.tensor([[1, 1, 0]])
    for level, expected in (("token", [3.0, 0.5, 0.0]), ("sequence", [2.0] * 2 + [0.0]), ("geometric", [2**0.5] * 2 + [0.0])):
        config = OffPolicyConfig(proximal="recompute", correction="truncate", level=level, cap=3.0)
        assert correction_weights(config, ratio.log(), torch.zeros(1, 3), mask)[0].tolist() == pytest.approx(expected)
