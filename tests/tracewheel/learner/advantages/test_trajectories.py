"""Advantages of whole samples against numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.config import (
    BatchAdvantageConfig,
    GaeAdvantageConfig,
    GroupAdvantageConfig,
    LeaveOneOutAdvantageConfig,
)
from tracewheel.learner.advantages.group import zero_variance, zero_variance_share
from tracewheel.learner.advantages.trajectories import trajectory_advantages

NAN, INF = math.nan, math.inf
SCALED, CENTRED = GroupAdvantageConfig(scale=True), GroupAdvantageConfig(scale=False)
LEAVE_ONE_OUT = LeaveOneOutAdvantageConfig()
BY_GROUP, BY_BATCH = BatchAdvantageConfig(center="group"), BatchAdvantageConfig(center="batch")

# Each case: rewards, group ids, advantages. The deviations are the unbiased ones.
CASES = {
    # mean 1/4, std sqrt((3 x 1/16 + 9/16) / 3) = 1/2: 0.75 / 0.5001 and -0.25 / 0.5001
    "group: one success in four": (SCALED, [1, 0, 0, 0], "aaaa", [1.4997001, -0.4999000, -0.4999000, -0.4999000]),
    # mean 1/2, std sqrt(1/2): 0.5 / 0.7072068
    "group: a pair": (SCALED, [0, 1], "aa", [-0.7070068, 0.7070068]),
    # the unscored samples are not in the mean: the pair above
    "group: unscored is left out": (SCALED, [0, 1, NAN, INF, -INF], "aaaaa", [-0.7070068, 0.7070068, 0, 0, 0]),
    # mean 2, std 1: 1 / 1.0001
    "group: three values": (SCALED, [1.0, 2.0, 3.0], "aaa", [-0.9999000, 0, 0.9999000]),
    "group: interleaved groups": (SCALED, [0, 5, 1, 5], "abab", [-0.7070068, 0, 0.7070068, 0]),
    "group: all succeed": (SCALED, [1, 1, 1], "aaa", [0, 0, 0]),
    "group: the same fraction everywhere": (SCALED, [0.1, 0.1, 0.1], "aaa", [0, 0, 0]),
    "group: one scored sample": (SCALED, [1, NAN], "aa", [0, 0]),
    "group: nothing scored": (SCALED, [NAN, NAN], "aa", [0, 0]),
    "group: no samples": (SCALED, [], "", []),
    "group: mean only": (CENTRED, [1, 0, 0, 0, NAN], "aaaaa", [0.75, -0.25, -0.25, -0.25, 0]),
    # 1 - 0; 0 - 1/3 three times
    "leave one out: one success in four": (LEAVE_ONE_OUT, [1, 0, 0, 0], "aaaa", [1, -1 / 3, -1 / 3, -1 / 3]),
    # 1 - (2 + 6) / 2, 2 - (1 + 6) / 2, 6 - (1 + 2) / 2; the unscored one is in no baseline
    "leave one out: unscored": (LEAVE_ONE_OUT, [1, NAN, 2, 6], "aaaa", [-3, 0, -1.5, 4.5]),
    "leave one out: alone": (LEAVE_ONE_OUT, [1, 0, 1], "abb", [0, -1, 1]),
    "leave one out: all the same": (LEAVE_ONE_OUT, [0.1, 0.1, 0.1], "aaa", [0, 0, 0]),
    # batch: mean 1/2, std sqrt(4 x 1/4 / 3) = 0.5773503; groups a: 1/2, b: 1/2
    "batch, group's mean": (BY_GROUP, [1, 0, 0, 1], "aabb", [0.8658756, -0.8658756, -0.8658756, 0.8658756]),
    # batch: mean 3/4, std sqrt((3 x 1/16 + 9/16) / 3) = 1/2; group a: mean 1/2, b: mean 1
    "batch, group's mean: a group without variance": (BY_GROUP, [1, 0, 1, 1], "aabb", [0.9998000, -0.9998000, 0, 0]),
    "batch, its own mean": (BY_BATCH, [1, 0, 1, 1, NAN], "aabbb", [0.4999000, -1.4997001, 0.4999000, 0.4999000, 0]),
    "batch: no variance at all": (BY_BATCH, [0.1, 0.1, 0.1], "aab", [0, 0, 0]),
    "batch: a single sample": (BY_BATCH, [1, NAN], "ab", [0, 0]),
    "batch: no samples": (BY_BATCH, [], "", []),
}


@pytest.mark.parametrize("case", CASES)
def test_advantages_by_hand(case):
    config, rewards, groups, expected = CASES[case]
    advantages = trajectory_advantages(config, torch.tensor(rewards, dtype=torch.float32), list(groups))
    torch.testing.assert_close(advantages, torch.tensor(expected, dtype=torch.float32), rtol=0, atol=1e-6)


# Which samples are in a group that has scored rewards, all the same.
SILENT = {
    "a pair": ([0, 1], "aa", [False, False]),
    "unscored is left out": ([0, 1, NAN], "aaa", [False] * 3),
    "interleaved groups": ([0, 5, 1, 5], "abab", [False, True, False, True]),
    "the same fraction everywhere": ([0.1, 0.1, 0.1], "aaa", [True] * 3),
    "one scored sample": ([1, NAN], "aa", [True, True]),
    "an infinite reward is unscored": ([1, INF, 1], "aaa", [True] * 3),
    "nothing scored": ([NAN, INF], "aa", [False, False]),
}


@pytest.mark.parametrize("case", SILENT)
def test_zero_variance(case):
    rewards, groups, expected = SILENT[case]
    assert zero_variance(torch.tensor(rewards, dtype=torch.float32), list(groups)).tolist() == expected


def test_zero_variance_share_ignores_unscored_groups():
    rewards = torch.tensor([1.0, 1.0, 0.0, 1.0, NAN, NAN, 0.0, NAN])
    assert zero_variance_share(rewards, list("aabbccdd")) == pytest.approx(2 / 3)
    assert zero_variance_share(torch.tensor([NAN]), ["a"]) == 0.0


def test_groups_may_be_a_tensor():
    rewards = torch.tensor([0.0, 1.0, 1.0, 1.0])
    as_list = trajectory_advantages(SCALED, rewards, ["x", "x", "y", "y"])
    as_tensor = trajectory_advantages(SCALED, rewards, torch.tensor([7, 7, 3, 3]))
    assert torch.equal(as_list, as_tensor)


def test_different_lengths_are_refused():
    with pytest.raises(ValueError, match="do not fit"):
        trajectory_advantages(SCALED, torch.zeros(3), ["a", "b"])


def test_advantages_that_compare_no_trajectories_are_refused():
    with pytest.raises(TypeError, match="gae"):
        trajectory_advantages(GaeAdvantageConfig(), torch.zeros(1), ["a"])


@given(
    st.sampled_from([SCALED, CENTRED, LEAVE_ONE_OUT, BY_GROUP, BY_BATCH]),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.25, 1.0, NAN, INF])), min_size=1, max_size=20),
    st.randoms(),
)
def test_order_does_not_matter_and_the_sum_is_zero(config, samples, rng):
    order = list(range(len(samples)))
    rng.shuffle(order)

    def advantages_of(rows):
        return trajectory_advantages(config, torch.tensor([r for _, r in rows]), [g for g, _ in rows]).tolist()

    advantages = advantages_of(samples)
    shuffled = advantages_of([samples[position] for position in order])
    assert shuffled == pytest.approx([advantages[position] for position in order], abs=1e-6)
    compared = ["abc"] if config is BY_BATCH else list("abc")
    for groups in compared:
        assert sum(a for a, (g, _) in zip(advantages, samples, strict=True) if g in groups) == pytest.approx(0, abs=1e-5)
    assert all(a == 0.0 for a, (_, reward) in zip(advantages, samples, strict=True) if not math.isfinite(reward))
