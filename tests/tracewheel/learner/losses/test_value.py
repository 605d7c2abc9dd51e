"""The critic's loss, explained variance, entropy weight and correction weights by hand."""

import math

import pytest
import torch

from tracewheel.config import OffPolicyConfig
from tracewheel.learner.losses.aggregation import StepTotals, explained_variance, value_loss
from tracewheel.learner.losses.ratios import correction_weights

NAN = math.nan


def test_value_loss_by_hand():
    """Old values 0, clip 0.2. 0.5 to return 1: held at 0.2, error 0.8 > 0.5, no gradient. -0.5 to 1: held at -0.2, error
    1.5 > 1.2, gradient -1.5. 0.1 to 1: inside, 0.9. The last is masked.
    """
    values = torch.tensor([[0.5, -0.5, 0.1, NAN]], requires_grad=True)
    old, returns = torch.tensor([[0.0, 0.0, 0.0, NAN]]), torch.tensor([[1.0, 1.0, 1.0, math.inf]])
    mask, totals = torch.tensor([[1, 1, 1, 0]]), StepTotals(tokens=3, sequences=1)
    loss = value_loss(values, old, returns, mask, totals, clip=0.2)
    assert loss.item() == pytest.approx(0.5 * (0.8**2 + 1.5**2 + 0.9**2) / 3)
    loss.backward()
    torch.testing.assert_close(values.grad, torch.tensor([[0.0, -1.5 / 3, -0.9 / 3, 0.0]]))
    assert value_loss(values, old, returns, mask, totals, clip=None).item() == pytest.approx(
        0.5 * (0.5**2 + 1.5**2 + 0.9**2) / 3
    )


def test_explained_variance_by_hand():
    """Returns 0, 1, 2 have variance 1. Errors 0.5, 0, -0.5 have variance 1/4."""
    returns, mask = torch.tensor([[0.0, 1.0, 2.0, NAN]]), torch.tensor([[1, 1, 1, 0]])
    assert explained_variance(torch.tensor([[-0.5, 1.0, 2.5, 7.0]]), returns, mask) == pytest.approx(0.75)
    assert explained_variance(returns, returns, mask) == 1.0
    assert explained_variance(torch.full((1, 4), 5.0), returns, mask) == pytest.approx(0.0)
    assert explained_variance(-returns, returns, mask) == pytest.approx(-3.0)


def test_constant_returns_have_no_explained_variance():
    assert explained_variance(torch.tensor([[0.0, 1.0]]), torch.ones(1, 2), torch.ones(1, 2)) is None
    assert explained_variance(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.0]]), torch.tensor([[1, 0]])) is None


# Ratios of the proximal to the behaviour policy, cap 2. Products: 4 x 0.25 x 1.5 = 1.5 and 3 x 1 = 3.
RATIOS = torch.tensor([[4.0, 0.25, 1.5], [3.0, 1.0, NAN]])
MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])
WEIGHTS = {
    ("none", "token"): [[1, 1, 1], [1, 1, 0]],
    ("truncate", "token"): [[2, 0.25, 1.5], [2, 1, 0]],
    ("mask", "token"): [[0, 0, 1.5], [0, 1, 0]],
    ("truncate", "sequence"): [[1.5, 1.5, 1.5], [2, 2, 0]],
    ("mask", "sequence"): [[1.5, 1.5, 1.5], [0, 0, 0]],
}


@pytest.mark.parametrize(("correction", "level"), WEIGHTS)
def test_correction_weights_by_hand(correction, level):
    config = OffPolicyConfig(proximal="recompute", correction=correction, level=level, cap=2.0)
    proximal = (RATIOS.log() - 5.0).requires_grad_()
    weights = correction_weights(config, proximal, torch.full((2, 3), -5.0), MASK)
    torch.testing.assert_close(weights, torch.tensor(WEIGHTS[correction, level], dtype=torch.float32))
    assert not weights.requires_grad


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize(("correction", "expected"), [("truncate", 2.0), ("mask", 0.0)])
def test_overflowing_ratios_are_capped_or_masked(correction, expected, level):
    config = OffPolicyConfig(proximal="recompute", correction=correction, level=level, cap=2.0)
    weights = correction_weights(config, torch.zeros(1, 2), torch.full((1, 2), -500.0), torch.ones(1, 2))
    assert weights.tolist() == [[pytest.approx(expected)] * 2]
