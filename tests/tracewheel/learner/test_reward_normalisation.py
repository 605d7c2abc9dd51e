"""Rewards on one scale across families, by hand and by resuming."""

import json
import math

import pytest

from tracewheel.config import PolicyGradientConfig
from tracewheel.core.errors import DataError
from tracewheel.learner.advantage_estimator import LEAST_DEVIATION, RETAIN, deviation, normalise, normalise_turns


def test_each_family_gets_mean_0_and_deviation_1_by_hand():
    """Family a: 0 and 10, mean 5, deviation 5. Family b: 0, 0, 1, 1, mean 0.5, deviation 0.5."""
    rewards, state = normalise([0.0, 0.0, 10.0, 0.0, 1.0, 1.0], ["a", "b", "a", "b", "b", "b"], {})
    assert rewards == [-1.0, -1.0, 1.0, -1.0, 1.0, 1.0]
    assert state == {
        "a": {"count": 2.0, "mean": 5.0, "squares": 50.0},
        "b": {"count": 4.0, "mean": 0.5, "squares": 1.0},
    }


def test_earlier_rewards_decay():
    """Weighted moments by hand: the first update's rewards weigh RETAIN each, the second's 1."""
    first, second = [0.0, 1.0, 1.0], [0.0, 0.5]
    _, state = normalise(first, ["a"] * 3, {})
    scaled, state = normalise(second, ["a"] * 2, state)
    weights = [RETAIN] * 3 + [1.0] * 2
    values = first + second
    mean = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    spread = sum(w * (v - mean) ** 2 for w, v in zip(weights, values, strict=True)) / sum(weights)
    assert state["a"]["mean"] == pytest.approx(mean)
    assert deviation(state["a"]) == pytest.approx(math.sqrt(spread))
    assert scaled == pytest.approx([(v - mean) / math.sqrt(spread) for v in second])


def test_unscored_rewards_are_ignored_and_equal_ones_centred():
    rewards, state = normalise([0.5, float("nan"), 0.5, float("inf")], ["a"] * 4, {})
    assert rewards[0] == rewards[2] == 0.0
    assert math.isnan(rewards[1]) and rewards[3] == math.inf
    assert state["a"] == {"count": 2.0, "mean": 0.5, "squares": 0.0}
    assert deviation(state["a"]) == LEAST_DEVIATION


def test_an_unsampled_family_keeps_its_scale():
    _, state = normalise([0.0, 1.0, 3.0], ["a", "a", "b"], {})
    _, later = normalise([1.0], ["b"], state)
    assert later["a"] == state["a"]


def test_turns_sum_to_the_normalised_reward():
    turns, families = [[0.5, -0.25, 0.75], [0.0], []], ["a", "a", "b"]
    totals = [sum(rewards) for rewards in turns]
    scaled, state = normalise(totals, families, {})
    of_turns = normalise_turns(turns, families, state)
    assert [sum(rewards) for rewards in of_turns[:2]] == pytest.approx(scaled[:2])
    assert of_turns[0][:2] == pytest.approx([0.5 / 0.5, -0.25 / 0.5])
    assert of_turns[2] == []


def test_scales_survive_json():
    batches = [([0.1 * n, 0.3, 1.0 / (n + 1)], ["a", "b", "a"]) for n in range(6)]
    state, expected = {}, []
    for rewards, families in batches:
        scaled, state = normalise(rewards, families, state)
        expected.append(scaled)
    resumed, got = {}, []
    for rewards, families in batches:
        scaled, resumed = normalise(rewards, families, json.loads(json.dumps(resumed)))
        got.append(scaled)
    assert (got, resumed) == (expected, state)


@pytest.mark.parametrize("bad", [[1.0], {"count": 1.0, "mean": 0.0}, {"count": 0.0, "mean": 0.0, "squares": 0.0}])
def test_invalid_scales_are_a_data_error_with_the_family(bad):
    with pytest.raises(DataError, match="family 'files'"):
        normalise([1.0], ["files"], {"files": bad})
    with pytest.raises(ValueError, match="1 rewards and 2 families"):
        normalise([1.0], ["a", "b"], {})


def test_an_advantage_that_compares_no_rewards_refuses_it():
    with pytest.raises(ValueError, match="compares no rewards"):
        PolicyGradientConfig(kind="rejection_sampling", reward_normalisation="domain")
