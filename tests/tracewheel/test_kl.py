"""The estimators on a distribution small enough to sum over."""

import math

import pytest
import torch

from tracewheel.kl import k1, k2, k3

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
