"""Whitening and the way from rollouts to rows."""

import math

import pytest
import torch

from tracewheel.learner.advantages import broadcast, whiten


def test_whiten_by_hand():
    """1, 2, 3 have mean 2 and deviation 1; what is masked is neither read nor kept."""
    white = whiten(torch.tensor([[1.0, math.nan, 2.0], [3.0, 50.0, math.inf]]), torch.tensor([[1, 0, 1], [1, 0, 0]]))
    torch.testing.assert_close(white, torch.tensor([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))


def test_what_does_not_vary_becomes_zero():
    assert whiten(torch.full((2, 2), 0.1), torch.ones(2, 2)).abs().max() == 0
    assert whiten(torch.tensor([[5.0, math.nan]]), torch.tensor([[1, 0]])).tolist() == [[0.0, 0.0]]
    assert whiten(torch.tensor([[math.nan]]), torch.tensor([[0]])).tolist() == [[0.0]]


def test_each_row_of_a_split_rollout_gets_its_advantage():
    advantages = torch.tensor([0.5, -1.5])
    assert broadcast(advantages, [0, 1, 1, 0]).tolist() == [0.5, -1.5, -1.5, 0.5]
    assert broadcast(advantages, torch.tensor([1])).tolist() == [-1.5]
    assert broadcast(advantages, []).tolist() == []
    for rows in ([0, 2], [-1]):
        with pytest.raises(IndexError, match="there are 2"):
            broadcast(advantages, rows)
