"""Values at prompt, observation and padding tokens change no loss and no gradient."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.config import (
    CispoConfig,
    ClipConfig,
    GaeAdvantageConfig,
    GspoConfig,
    KlConfig,
    LikelihoodConfig,
    OffPolicyConfig,
    SapoConfig,
)
from tracewheel.learner.advantages.gae import gae
from tracewheel.learner.advantages.group import whiten
from tracewheel.learner.losses.aggregation import StepTotals, aggregate, explained_variance, value_loss
from tracewheel.learner.losses.policy import PolicyTokens, policy_loss
from tracewheel.learner.losses.ratios import correction_weights, kl_term

SURROGATES = [
    ClipConfig(),
    ClipConfig(dual=1.5),
    CispoConfig(),
    GspoConfig(low=0.2, high=0.2),
    SapoConfig(),
    LikelihoodConfig(),
]

number = st.floats(-5, 0, width=32)
anything = st.one_of(st.floats(-30, 30, width=32), st.sampled_from([math.nan, math.inf, -math.inf, 1e30]))


@st.composite
def problems(draw, tensors):
    """A mask [B, T], random tensors, and the same tensors with other values wherever the mask is 0."""
    rows, tokens = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    size = rows * tokens

    def grid(element):
        return torch.tensor(draw(st.lists(element, min_size=size, max_size=size))).view(rows, tokens)

    mask = grid(st.integers(0, 1))
    first = [grid(number) for _ in range(tensors)]
    second = [torch.where(mask.bool(), values, grid(anything)) for values in first]
    return mask, first, second


def same_outcome(mask, first, second, loss_of):
    """Both inputs give one loss and one gradient, which is finite, and exactly 0 off the mask."""
    outcomes = []
    for given_tensors in (first, second):
        leaf = given_tensors[0].clone().requires_grad_()
        loss, other = loss_of(leaf, *given_tensors[1:])
        loss.backward()
        outcomes.append((loss.detach(), other, leaf.grad))
    before, after = outcomes
    assert torch.isfinite(before[0]) and torch.equal(before[0], after[0])
    assert before[1] == after[1]
    assert torch.equal(before[2], after[2])
    assert torch.isfinite(after[2]).all() and (after[2][mask == 0] == 0).all()


@pytest.mark.parametrize("surrogate", SURROGATES, ids=str)
@given(
    problems(5),
    st.sampled_from(["token", "sequence", "constant"]),
    st.booleans(),
    st.sampled_from([None, "k1", "k2", "k3"]),
    st.booleans(),
)
def test_policy_loss_and_kl_ignore_masked_tokens(surrogate, problem, aggregation, weighted, kl, corrected):
    mask, first, second = problem
    totals = StepTotals(int(mask.sum()), len(mask), length=7)

    def loss_of(logprobs, old, advantages, weights, reference):
        tokens = PolicyTokens(logprobs, old, advantages, mask, weights if weighted else None, reference)
        result = policy_loss(surrogate, tokens, totals, aggregation)
        if kl is None:
            return result.loss, result.diagnostics
        config = KlConfig(estimator=kl, corrected=corrected)
        term = kl_term(config, logprobs, reference, old, mask)
        return result.loss + 0.1 * aggregate(term, mask, aggregation, totals), result.diagnostics

    same_outcome(mask, first, second, loss_of)


@given(problems(3), st.sampled_from([None, 0.2]))
def test_value_loss_ignores_masked_tokens(problem, clip):
    mask, first, second = problem
    totals = StepTotals(int(mask.sum()), len(mask))

    def loss_of(values, old, returns):
        return value_loss(values, old, returns, mask, totals, clip), explained_variance(values, returns, mask)

    same_outcome(mask, first, second, loss_of)


@given(problems(1), st.sampled_from(["token", "sequence", "constant"]))
def test_aggregates_ignore_masked_tokens(problem, aggregation):
    """The entropy bonus goes through `aggregate` too."""
    mask, first, second = problem
    totals = StepTotals(int(mask.sum()), len(mask), length=7)
    same_outcome(mask, first, second, lambda values: (aggregate(values, mask, aggregation, totals), None))


@given(
    problems(3),
    st.sampled_from(["token", "turn"]),
    st.sampled_from(["none", "truncate", "mask"]),
    st.sampled_from(["token", "sequence"]),
)
def test_advantages_and_weights_ignore_masked_tokens(problem, granularity, correction, level):
    mask, first, second = problem
    turns = torch.where(mask.bool(), torch.cumsum(1 - mask, 1), -1)
    config = GaeAdvantageConfig(granularity=granularity)
    off_policy = OffPolicyConfig(proximal="recompute", correction=correction, level=level)

    def outcome(rewards, values, log_ratio):
        return [
            *gae(rewards, values, turns, config),
            whiten(rewards, mask),
            correction_weights(off_policy, values, log_ratio, mask),
        ]

    for before, after in zip(outcome(*first), outcome(*second), strict=True):
        assert torch.equal(before, after)
        assert torch.isfinite(after).all() and (after[mask == 0] == 0).all()
