"""Whitening of advantages."""

import math

import torch

from tracewheel.learner.advantages.group import whiten


def test_whiten_by_hand():
    """1, 2, 3 have mean 2 and deviation 1; masked values are not read and become 0."""
    white = whiten(torch.tensor([[1.0, math.nan, 2.0], [3.0, 50.0, math.inf]]), torch.tensor([[1, 0, 1], [1, 0, 0]]))
    torch.testing.assert_close(white, torch.tensor([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))


def test_constant_advantages_whiten_to_zero():
    assert whiten(torch.full((2, 2), 0.1), torch.ones(2, 2)).abs().max() == 0
    assert whiten(torch.tensor([[5.0, math.nan]]), torch.tensor([[1, 0]])).tolist() == [[0.0, 0.0]]
    assert whiten(torch.tensor([[math.nan]]), torch.tensor([[0]])).tolist() == [[0.0]]
