"""The surrogates and aggregations against numbers worked out by hand."""

import math

import pytest
import torch

from tracewheel.config import CispoConfig, ClipConfig, GspoConfig, LikelihoodConfig, SapoConfig
from tracewheel.learner.losses.aggregation import StepTotals, aggregate
from tracewheel.learner.losses.policy import Diagnostics, PolicyTokens, policy_loss

RATIOS = torch.tensor([[1.5, 0.5, 1.1], [1.5, 0.5, 9.0]], dtype=torch.double)
ADVANTAGES = torch.tensor([[1.0, 1.0, 1.0], [-2.0, -2.0, -2.0]], dtype=torch.double)
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])
TOTALS = StepTotals(tokens=5, sequences=2, length=4)
OLD = torch.full((2, 3), -3.0, dtype=torch.double)


def loss_of(config, *, aggregation="token", ratios=RATIOS, advantages=ADVANTAGES, mask=MASK, totals=TOTALS, **more):
    """The loss, its gradient with respect to the log-probabilities, and the diagnostics."""
    old = torch.full_like(ratios, -3.0)
    logprobs = (ratios.log() + old).requires_grad_()
    result = policy_loss(config, PolicyTokens(logprobs, old, advantages, mask, **more), totals, aggregation)
    result.loss.backward()
    return result.loss.item(), logprobs.grad, result.diagnostics


def gradient_is(gradient, expected):
    torch.testing.assert_close(gradient, torch.tensor(expected, dtype=gradient.dtype), rtol=0, atol=1e-9)


# Row 1: min(1.5, 1.2), min(0.5, 0.8), 1.1 are cut at 1.2 only. Row 2, A = -2: 1.5 stays, 0.5 is cut at 0.8.
TERMS = [[-1.2, -0.5, -1.1], [3.0, 1.6]]


def test_clip_by_hand():
    loss, gradient, diagnostics = loss_of(ClipConfig())
    assert loss == pytest.approx((sum(TERMS[0]) + sum(TERMS[1])) / 5)
    # The gradient of ratio x A by the log-probability is ratio x A; clipped tokens have none.
    gradient_is(gradient, [[0, -0.5 / 5, -1.1 / 5], [3.0 / 5, 0, 0]])
    assert diagnostics.clip_share == pytest.approx(2 / 5)
    assert diagnostics.ratio_max == pytest.approx(1.5)
    assert diagnostics.weight_mean == 1.0
    assert diagnostics.behaviour_kl == pytest.approx(sum(r - 1 - math.log(r) for r in [1.5, 0.5, 1.1, 1.5, 0.5]) / 5)


def test_aggregations_by_hand():
    assert loss_of(ClipConfig(), aggregation="sequence")[0] == pytest.approx((sum(TERMS[0]) / 3 + sum(TERMS[1]) / 2) / 2)
    assert loss_of(ClipConfig(), aggregation="constant")[0] == pytest.approx((sum(TERMS[0]) + sum(TERMS[1])) / (2 * 4))
    with pytest.raises(ValueError, match="length"):
        loss_of(ClipConfig(), aggregation="constant", totals=StepTotals(5, 2))


def test_clip_higher_widens_the_upper_side_only():
    loss, _, diagnostics = loss_of(ClipConfig(low=0.2, high=0.4))
    assert loss == pytest.approx((-1.4 - 0.5 - 1.1 + 3.0 + 1.6) / 5)
    assert diagnostics.clip_share == pytest.approx(2 / 5)


def test_dual_clip_bounds_the_loss_of_negative_advantages():
    """A = -2 and dual 1.25: the loss of ratio 1.5 falls from 3 to 2.5 and loses its gradient; A = 1 is as before."""
    loss, gradient, diagnostics = loss_of(ClipConfig(dual=1.25))
    assert loss == pytest.approx((-1.2 - 0.5 - 1.1 + 2.5 + 1.6) / 5)
    gradient_is(gradient, [[0, -0.5 / 5, -1.1 / 5], [0, 0, 0]])
    assert diagnostics.clip_share == pytest.approx(3 / 5)


def test_cispo_by_hand():
    """-min(ratio, 1.2) A log p: the weight is a constant, so the gradient is -min(ratio, 1.2) A, and no token loses it."""
    loss, gradient, diagnostics = loss_of(CispoConfig(high=1.2))
    weighed = [-1.2 * 1, -0.5 * 1, -1.1 * 1, 1.2 * 2, 0.5 * 2]
    logprobs = [math.log(ratio) - 3.0 for ratio in (1.5, 0.5, 1.1, 1.5, 0.5)]
    assert loss == pytest.approx(sum(w * p for w, p in zip(weighed, logprobs, strict=True)) / 5)
    gradient_is(gradient, [[-1.2 / 5, -0.5 / 5, -1.1 / 5], [2.4 / 5, 1.0 / 5, 0]])
    assert diagnostics.clip_share == pytest.approx(2 / 5)


def test_gspo_by_hand():
    """Geometric means over the action tokens: (1.5 x 0.5 x 1.1)^(1/3) = 0.9378888 and (1.5 x 0.5)^(1/2) = 0.8660254.

    Bounds 0.9 and 1.2: row 1 is inside; row 2, A = -2, is below 0.9: its loss is 1.8, and it has no gradient.
    """
    loss, gradient, diagnostics = loss_of(GspoConfig(low=0.1, high=0.2), aggregation="sequence")
    s = 0.825 ** (1 / 3)
    assert loss == pytest.approx((-s + 1.8) / 2)
    gradient_is(gradient, [[-s / 3 / 2] * 3, [0, 0, 0]])
    assert diagnostics.clip_share == pytest.approx(2 / 5)
    assert diagnostics.ratio_max == pytest.approx(1.5)


def test_gspo_gives_each_token_its_own_advantage():
    """GSPO-token: the ratio is the row's, the advantage and the log-probability are the token's."""
    advantages = torch.tensor([[1.0, 0.0, -1.0]], dtype=torch.double)
    ratios = torch.tensor([[1.1, 1.0, 1 / 1.1]], dtype=torch.double)
    _, gradient, _ = loss_of(
        GspoConfig(low=0.1, high=0.2),
        aggregation="token",
        ratios=ratios,
        advantages=advantages,
        mask=torch.ones(1, 3),
        totals=StepTotals(3, 1),
    )
    gradient_is(gradient, [[-1 / 3, 0, 1 / 3]])


def test_sapo_by_hand():
    """4 / tau x sigmoid(tau (r - 1)), tau 1 for A = 1 and 1.05 for A = -2. Its slope is 4 s (1 - s)."""
    loss, gradient, diagnostics = loss_of(SapoConfig())

    def sigmoid(x):
        return 1 / (1 + math.exp(-x))

    good = [sigmoid(0.5), sigmoid(-0.5), sigmoid(0.1)]
    bad = [sigmoid(1.05 * 0.5), sigmoid(1.05 * -0.5)]
    assert loss == pytest.approx((-sum(4 * s for s in good) + sum(2 * 4 / 1.05 * s for s in bad)) / 5)
    by_hand = [-4 * s * (1 - s) * r / 5 for s, r in zip(good, (1.5, 0.5, 1.1), strict=True)]
    by_hand_bad = [2 * 4 * s * (1 - s) * r / 5 for s, r in zip(bad, (1.5, 0.5), strict=True)]
    gradient_is(gradient, [by_hand, [*by_hand_bad, 0]])
    assert diagnostics.clip_share == 0.0


def test_likelihood_by_hand():
    loss, gradient, diagnostics = loss_of(LikelihoodConfig())
    logprobs = [math.log(ratio) - 3.0 for ratio in (1.5, 0.5, 1.1, 1.5, 0.5)]
    assert loss == pytest.approx((-sum(logprobs[:3]) + 2 * sum(logprobs[3:])) / 5)
    gradient_is(gradient, [[-1 / 5] * 3, [2 / 5, 2 / 5, 0]])
    assert diagnostics.clip_share == 0.0 and diagnostics.ratio_max == pytest.approx(1.5)


SURROGATES = [
    ClipConfig(),
    ClipConfig(high=0.28, dual=3.0),
    CispoConfig(),
    GspoConfig(low=0.2, high=0.2),
    SapoConfig(),
    LikelihoodConfig(),
]


@pytest.mark.parametrize("config", SURROGATES, ids=str)
def test_on_policy_every_surrogate_has_the_policy_gradient(config):
    """At ratio 1 the gradient by the log-probability is -A, divided by the step's tokens."""
    ratios = torch.ones(2, 3, dtype=torch.double)
    _, gradient, diagnostics = loss_of(config, ratios=ratios)
    gradient_is(gradient, [[-1 / 5] * 3, [2 / 5, 2 / 5, 0]])
    assert diagnostics.clip_share == 0.0


@pytest.mark.parametrize("config", SURROGATES, ids=str)
def test_weights_multiply_each_token(config):
    weights = torch.tensor([[2.0, 0.0, 1.0], [0.5, 1.0, math.nan]], dtype=torch.double)
    _, plain, _ = loss_of(config)
    _, weighed, diagnostics = loss_of(config, weights=weights)
    torch.testing.assert_close(weighed, plain * weights.nan_to_num(0.0))
    assert diagnostics.weight_mean == pytest.approx(4.5 / 5)


def test_advantages_may_differ_from_token_to_token():
    advantages = torch.tensor([[1.0, 2.0, 0.0], [-1.0, 1.0, 5.0]], dtype=torch.double)
    loss, _, _ = loss_of(ClipConfig(), advantages=advantages)
    assert loss == pytest.approx((-1.2 - 2 * 0.5 - 0 + 1.5 - 0.5) / 5)


def test_behaviour_logprobs_change_only_the_diagnostics():
    """The ratio is to the proximal policy; the divergence reported is to the one that sampled."""
    ratios = torch.full((1, 1), 1.1, dtype=torch.double)
    one = torch.ones(1, 1, dtype=torch.double)
    behaviour = torch.full((1, 1), -3.0 + math.log(1.1) - math.log(2.0), dtype=torch.double)
    plain = loss_of(ClipConfig(), ratios=ratios, advantages=one, mask=one, totals=StepTotals(1, 1))
    given = loss_of(
        ClipConfig(), ratios=ratios, advantages=one, mask=one, totals=StepTotals(1, 1), behaviour_logprobs=behaviour
    )
    assert given[0] == plain[0] and torch.equal(given[1], plain[1])
    assert plain[2].behaviour_kl == pytest.approx(0.1 - math.log(1.1))
    assert given[2].behaviour_kl == pytest.approx(1 - math.log(2))
    assert given[2].ratio_max == pytest.approx(1.1)


def test_a_sequence_without_actions_counts_as_a_sequence_and_adds_nothing():
    values, mask = torch.tensor([[2.0, 4.0], [7.0, 7.0]]), torch.tensor([[1, 1], [0, 0]])
    totals = StepTotals(tokens=2, sequences=2, length=3)
    assert aggregate(values, mask, "sequence", totals).item() == 1.5
    assert aggregate(values, mask, "token", totals).item() == 3.0
    assert aggregate(values, mask, "constant", totals).item() == 1.0
    nothing = torch.zeros(2, 2)
    for config in SURROGATES:
        result = policy_loss(config, PolicyTokens(values, values, values, nothing), StepTotals(0, 2), "token")
        assert result.loss.item() == 0.0 and result.diagnostics == Diagnostics()


def test_different_shapes_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        PolicyTokens(OLD, OLD, torch.ones(2), MASK)
