"""The estimators on a distribution small enough to sum over."""

import math

import pytest
import torch

from tracewheel.config import KlConfig
from tracewheel.learner.losses.ratios import adapted_weight, k1, k2, k3

POLICY = torch.tensor([0.5, 0.3, 0.2], dtype=torch.double).log()
REFERENCE = torch.tensor([0.4, 0.4, 0.2], dtype=torch.double).log()
DIVERGENCE = 0.5 * math.log(1.25) + 0.3 * math.log(0.75)


@pytest.mark.parametrize("estimator", [k1, k3])
def test_unbiased_estimators_have_the_divergence_as_their_mean(estimator):
    mean = (POLICY.exp() * estimator(POLICY, REFERENCE)).sum()
    assert mean.item() == pytest.approx(DIVERGENCE, abs=1e-12)


def test_values_by_hand():
    half, whole = torch.tensor([math.log(0.5)]), torch.tensor([0.0])
    assert k1(half, whole).item() == pytest.approx(-0.6931472)
    assert k2(half, whole).item() == pytest.approx(0.2402265)
    assert k3(half, whole).item() == pytest.approx(2 - 1 - 0.6931472)


@pytest.mark.parametrize("estimator", [k2, k3])
def test_never_negative_and_zero_only_where_equal(estimator):
    logprobs = torch.linspace(-3, 0, 13, dtype=torch.double)
    values = estimator(logprobs, torch.full_like(logprobs, -1.5))
    assert (values >= 0).all() and values[6] == 0 and (values[:6] > 0).all() and (values[7:] > 0).all()


@pytest.mark.parametrize("estimator", [k1, k2, k3])
def test_shape_is_kept(estimator):
    assert estimator(torch.zeros(2, 3), torch.zeros(2, 3)).shape == (2, 3)


# Target 0.1, horizon 10, weight 0.5: errors of -0.1, 0, 0.1 and beyond the limit of 0.2 on both sides.
@pytest.mark.parametrize(
    ("observed", "expected"),
    [(0.09, 0.495), (0.1, 0.5), (0.11, 0.505), (5.0, 0.51), (0.0, 0.49), (-3.0, 0.49), (math.nan, 0.5), (math.inf, 0.5)],
)
def test_the_weight_follows_the_target(observed, expected):
    assert adapted_weight(KlConfig(target=0.1), 0.5, observed) == pytest.approx(expected)


def test_without_a_target_the_weight_stays():
    assert adapted_weight(KlConfig(), 0.5, 99.0) == 0.5
