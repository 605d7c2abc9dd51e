"""Credit by turn against numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.config import BatchAdvantageConfig, GroupAdvantageConfig, LeaveOneOutAdvantageConfig
from tracewheel.learner.advantages.trajectories import trajectory_advantages, turn_advantages

CENTRED = GroupAdvantageConfig(scale=False)


def test_discounted_rewards_to_go_are_compared_turn_by_turn():
    """Rewards to go at discount 1/2: [1 + 0 + 1/4 x 2, 0 + 1/2 x 2, 2] = [1.5, 1, 2] and [0.5, 1] (0 + 1/2, 1).

    First turns: mean 1. Second: mean 1. Third: the second row has ended and counts with 1, mean 1.5.
    """
    advantages = turn_advantages(CENTRED, [[1, 0, 2], [0, 1]], ["a", "a"], discount=0.5)
    assert advantages == [pytest.approx([0.5, 0.0, 0.5]), pytest.approx([-0.5, 0.0])]


def test_a_reward_credits_no_later_turn():
    """The sub-goal was reached at the first turn by the first row only; then both failed alike."""
    advantages = turn_advantages(CENTRED, [[0.5, 0.0], [0.0, 0.0]], ["a", "a"], discount=1.0)
    assert advantages == [[0.25, 0.0], [-0.25, 0.0]]


def test_scaling_uses_the_deviation_of_the_same_turn():
    """Rewards to go 3, 1 and 1, 1: at the first turn mean 2 and std sqrt(2), at the second no variance."""
    advantages = turn_advantages(GroupAdvantageConfig(), [[2, 1], [0, 1]], ["a", "a"], discount=1.0)
    assert advantages == [pytest.approx([1 / (math.sqrt(2) + 1e-4), 0.0]), pytest.approx([-1 / (math.sqrt(2) + 1e-4), 0.0])]


def test_leave_one_out_by_hand():
    """Rewards to go at discount 0 are the rewards: 3 - (1 + 2) / 2, 1 - (3 + 2) / 2, 2 - (3 + 1) / 2."""
    advantages = turn_advantages(LeaveOneOutAdvantageConfig(), [[3, 7], [1, 7], [2, 7]], list("aaa"), discount=0.0)
    assert advantages == [pytest.approx([1.5, 0]), pytest.approx([-1.5, 0]), pytest.approx([0, 0])]


@pytest.mark.parametrize("missing", [math.nan, math.inf])
def test_a_trajectory_with_an_unscored_turn_is_left_out(missing):
    advantages = turn_advantages(CENTRED, [[1.0, 0.0], [0.0], [5.0, missing], []], list("aaaa"), discount=1.0)
    assert advantages == [[0.5, 0.0], [-0.5], [0.0, 0.0], []]


def test_no_trajectories_give_no_advantages():
    assert turn_advantages(CENTRED, [], [], discount=1.0) == []


configs = st.sampled_from([GroupAdvantageConfig(), CENTRED, LeaveOneOutAdvantageConfig(), BatchAdvantageConfig()])
samples = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 4), st.sampled_from([0.0, 0.5, 1.0, math.nan])), min_size=1, max_size=12
)


@given(configs, samples)
def test_reward_on_the_last_turn_alone_gives_the_trajectory_advantage(config, rows):
    groups = [group for group, _, _ in rows]
    turn_rewards = [[0.0] * (turns - 1) + [reward] for _, turns, reward in rows]
    whole = trajectory_advantages(config, torch.tensor([reward for _, _, reward in rows], dtype=torch.double), groups).tolist()
    by_turn = turn_advantages(config, turn_rewards, groups, discount=1.0)
    assert by_turn == [pytest.approx([advantage] * turns) for advantage, (_, turns, _) in zip(whole, rows, strict=True)]
