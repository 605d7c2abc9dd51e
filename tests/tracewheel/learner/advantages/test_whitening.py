"""Whitening and the way from rollouts to rows."""

import math

import torch

from tracewheel.learner.advantages import whiten


def test_whiten_by_hand():
    """1, 2, 3 have mean 2 and deviation 1; what is masked is neither read nor kept."""
    white = whiten(torch.tensor([[1.0, math.nan, 2.0], [3.0, 50.0, math.inf]]), torch.tensor([[1, 0, 1], [1, 0, 0]]))
    torch.testing.assert_close(white, torch.tensor([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))


def test_what_does_not_vary_becomes_zero():
    assert whiten(torch.full((2, 2), 0.1), torch.ones(2, 2)).abs().max() == 0
    assert whiten(torch.tensor([[5.0, math.nan]]), torch.tensor([[1, 0]])).tolist() == [[0.0, 0.0]]
    assert whiten(torch.tensor([[math.nan]]), torch.tensor([[0]])).tolist() == [[0.0]]
