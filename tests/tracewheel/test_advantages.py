"""Group-normalised advantages against numbers worked out by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.advantages import group_advantages, zero_variance_share

NAN = math.nan

# Each case: rewards, group ids, advantages, zero-variance flags. The deviations are the unbiased ones.
SCALED = {
    # mean 1/4, std sqrt((3 x 1/16 + 9/16) / 3) = 1/2: 0.75 / 0.5001 and -0.25 / 0.5001
    "one success in four": ([1, 0, 0, 0], "aaaa", [1.4997001, -0.4999000, -0.4999000, -0.4999000], [False] * 4),
    # mean 1/2, std sqrt(1/2): 0.5 / 0.7072068
    "a pair": ([0, 1], "aa", [-0.7070068, 0.7070068], [False, False]),
    # the unscored third sample is not in the mean: the pair above
    "unscored is left out": ([0, 1, NAN], "aaa", [-0.7070068, 0.7070068, 0], [False] * 3),
    # mean 2, std 1: 1 / 1.0001
    "three values": ([1.0, 2.0, 3.0], "aaa", [-0.9999000, 0, 0.9999000], [False] * 3),
    "interleaved groups": ([0, 5, 1, 5], "abab", [-0.7070068, 0, 0.7070068, 0], [False, True, False, True]),
    "all succeed": ([1, 1, 1], "aaa", [0, 0, 0], [True] * 3),
    "the same fraction everywhere": ([0.1, 0.1, 0.1], "aaa", [0, 0, 0], [True] * 3),
    "one scored sample": ([1, NAN], "aa", [0, 0], [True, True]),
    "nothing scored": ([NAN, NAN], "aa", [0, 0], [False, False]),
    "no samples": ([], "", [], []),
}


@pytest.mark.parametrize("case", SCALED)
def test_advantages_worked_out_by_hand(case):
    rewards, groups, expected, zero_variance = SCALED[case]
    advantages, flags = group_advantages(torch.tensor(rewards, dtype=torch.float32), list(groups), scale=True)
    torch.testing.assert_close(advantages, torch.tensor(expected, dtype=torch.float32), rtol=0, atol=1e-6)
    assert flags.tolist() == zero_variance


def test_without_scale_only_the_mean_is_taken_off():
    advantages, _ = group_advantages(torch.tensor([1.0, 0.0, 0.0, 0.0, NAN]), ["a"] * 5, scale=False)
    torch.testing.assert_close(advantages, torch.tensor([0.75, -0.25, -0.25, -0.25, 0.0]))


def test_groups_may_be_a_tensor():
    rewards = torch.tensor([0.0, 1.0, 1.0, 1.0])
    as_list = group_advantages(rewards, ["x", "x", "y", "y"], scale=True)
    as_tensor = group_advantages(rewards, torch.tensor([7, 7, 3, 3]), scale=True)
    assert torch.equal(as_list[0], as_tensor[0]) and torch.equal(as_list[1], as_tensor[1])


def test_share_counts_groups_and_leaves_unscored_ones_out():
    rewards = torch.tensor([1.0, 1.0, 0.0, 1.0, NAN, NAN, 0.0, NAN])
    assert zero_variance_share(rewards, list("aabbccdd")) == pytest.approx(2 / 3)
    assert zero_variance_share(torch.tensor([NAN]), ["a"]) == 0.0


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="do not fit"):
        group_advantages(torch.zeros(3), ["a", "b"], scale=True)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.0, 0.25, 1.0, NAN])), min_size=1, max_size=20), st.randoms()
)
def test_order_does_not_matter_and_each_group_sums_to_zero(samples, rng):
    order = list(range(len(samples)))
    rng.shuffle(order)

    def advantages_of(rows):
        return group_advantages(torch.tensor([r for _, r in rows]), [g for g, _ in rows], scale=True)[0].tolist()

    advantages = advantages_of(samples)
    shuffled = advantages_of([samples[position] for position in order])
    assert shuffled == pytest.approx([advantages[position] for position in order], abs=1e-6)
    for group in "abc":
        assert sum(a for a, (g, _) in zip(advantages, samples, strict=True) if g == group) == pytest.approx(0, abs=1e-5)
    assert all(a == 0.0 for a, (_, reward) in zip(advantages, samples, strict=True) if math.isnan(reward))
