"""The worth of a run: room by hand and by simulation, the regression by hand, cost per point."""

import numpy as np
import pytest

from tracewheel.operations.worth import Cost, PastRun, cost_per_point, expected_cost, expected_gain, priced, room_of


def past(gain, room=0.5, new=0.0, seconds=60.0, tokens=1000):
    return PastRun(gain, room, new, seconds, tokens)


def test_room_is_what_groups_can_still_teach():
    """A flat posterior, groups of two: E[p^2] = E[(1-p)^2] = 1/3, so both outcomes with chance 1/3, and half is left."""
    assert room_of([(1, 1)], 2) == pytest.approx(1 / 6)
    assert room_of([(1, 1), (5000, 1)], 2) == pytest.approx(1 / 12, rel=0.01), "a mastered task leaves none"
    assert room_of([(1, 5000)], 8) < 0.01 and room_of([], 8) == 0.0
    p = np.random.default_rng(0).beta(3, 2, 400_000)
    chance = (1 - p**4 - (1 - p) ** 4).mean()
    assert room_of([(3, 2)], 4) == pytest.approx(chance * 2 / 5, rel=0.01)


def test_without_past_runs_the_interval_is_wide_and_it_narrows_with_them():
    first = expected_gain(0.5, 0.0, [])
    assert first.mean == pytest.approx(0.075) and first.low < 0 < first.high and first.runs == 0
    known = expected_gain(0.5, 0.0, [past(0.1)] * 12)
    assert known.mean == pytest.approx(0.5 * (0.15 + 12 * 0.2) / 13)
    assert known.high - known.low < (first.high - first.low) / 2
    assert expected_gain(0.01, 0.0, [past(0.1)] * 12).high < 0.01, "little room, little gain"
    assert expected_gain(0.5, 0.0, [past(None), past(0.1, room=None), past(0.1, room=0.0)]) == first


def test_gains_follow_new_evidence():
    runs = [past(0.05 + 0.2 * new, new=new) for new in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9) * 3]
    assert expected_gain(0.5, 0.9, runs).mean > expected_gain(0.5, 0.0, runs).mean + 0.05


def test_four_fifths_of_the_gains_that_follow_the_prior_lie_in_the_interval():
    """Runs drawn from the model itself: the noise's variance inverse-gamma, the coefficients normal."""
    stream, inside = np.random.default_rng(5), []
    for _ in range(600):
        variance = 0.02 / stream.gamma(1.0)
        base = 0.15 + np.sqrt(variance) * stream.standard_normal()
        slope = np.sqrt(variance / 4) * stream.standard_normal()
        news = stream.random(6)
        gains = 0.2 * (base + slope * news + np.sqrt(variance) * stream.standard_normal(6))
        found = expected_gain(
            0.2, news[-1], [past(gain, room=0.2, new=new) for gain, new in zip(gains[:-1], news[:-1], strict=True)]
        )
        inside.append(found.low <= gains[-1] <= found.high)
    assert np.mean(inside) == pytest.approx(0.8, abs=0.05)


def test_cost_is_that_of_the_last_runs_and_money_needs_a_price():
    runs = [past(0.1, seconds=9999.0)] + [past(0.1, seconds=3600.0, tokens=2_000_000)] * 5
    assert expected_cost(runs, (2.0, 0.5), "EUR") == Cost(3600.0, 2_000_000, 3.0, "EUR")
    assert expected_cost(runs, (None, None), "EUR").money is None and expected_cost([], (1.0, 1.0), "EUR") is None


def test_cost_per_point_is_unknown_when_nothing_was_gained():
    cost = priced(600.0, 1000, (6.0, None), "EUR")
    assert cost_per_point(cost, 0.05, True) == {"seconds": 120.0, "tokens": 200.0, "money": 0.2}
    for gain, promoted in ((0.05, False), (-0.01, True), (None, True)):
        assert set(cost_per_point(cost, gain, promoted).values()) == {None}
