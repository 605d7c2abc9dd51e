"""Paired tests: against full enumeration, their definitions, and published implementations."""

import itertools
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracewheel.core.paired_tests import holm, likelihood_root, lower_tail, mean_interval, sign_flip_p

EIGHTHS = st.integers(-8, 8).map(lambda number: number / 8)


@settings(max_examples=60, deadline=None)
@given(st.lists(EIGHTHS, min_size=1, max_size=9))
def test_the_randomisation_test_counts_every_sign(differences):
    sizes = np.abs(differences)
    sums = np.array([np.dot(signs, sizes) for signs in itertools.product((-1.0, 1.0), repeat=len(sizes))])
    assert sign_flip_p(differences) == pytest.approx(float((sums >= sum(differences) - 1e-9).mean()), abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=300))
def test_any_differences_give_a_probability(differences):
    p, opposite = sign_flip_p(differences), sign_flip_p([-value for value in differences])
    assert 0.0 <= p <= 1.0 and p + opposite >= 1.0 - 1e-9


def test_many_tasks_agree_with_the_normal_approximation():
    differences = np.random.default_rng(0).normal(0.02, 0.3, 600).clip(-1.0, 1.0).round(2)
    z = differences.sum() / np.sqrt((differences**2).sum())
    assert sign_flip_p(differences) == pytest.approx(NormalDist().cdf(-z), rel=0.02)


# statsmodels 0.15.0: DescStat(values).test_mean(0.0)[0], .ci_mean(sig=0.05), for 7 tasks; `benchmarks/gate_published.py`
# compares 40 random cases.
VALUES = [0.5, 0.25, -0.125, 0.75, -1.0, 1.0, 0.375]
PUBLISHED = {"ratio": 0.958075461, "interval": [-0.2813638, 0.6238018]}


def test_the_likelihood_ratio_and_its_interval_are_those_of_statsmodels():
    assert likelihood_root(VALUES, 0.0) ** 2 == pytest.approx(PUBLISHED["ratio"], rel=1e-6)
    assert mean_interval(VALUES, VALUES, 0.025) == pytest.approx(PUBLISHED["interval"], abs=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.lists(EIGHTHS, min_size=2, max_size=60), st.sampled_from([0.025, 0.003, 5e-5]))
def test_an_end_of_the_interval_is_where_the_likelihood_rejects(differences, level):
    z, interval = NormalDist().inv_cdf(1 - level), mean_interval(differences, differences, level)
    assert -1.0 <= interval.low <= np.mean(differences) <= interval.high <= 1.0
    assert (likelihood_root(differences, 0.0) > z + 1e-6) <= (interval.low > 0.0)
    for end, side in ((interval.low, 1.0), (interval.high, -1.0)):
        if abs(end) < 1.0 - 1e-6:
            assert side * likelihood_root(differences, end) == pytest.approx(z, abs=1e-4)


def test_a_catastrophe_not_yet_seen_is_allowed_for():
    """190 of 200 tasks gain a little: an unseen loss of 1 could hide among the rest, so the interval reaches below."""
    little = [0.05] * 200
    assert mean_interval(little, little, 0.025).low < 0.05 - 0.005


def test_missing_values_widen_the_interval():
    lowest, highest = [0.0] * 50 + [0.5] * 50, [0.5] * 100
    wide, low, high = (
        mean_interval(lowest, highest, 0.01),
        mean_interval(lowest, lowest, 0.01),
        mean_interval(highest, highest, 0.01),
    )
    assert wide == (low.low, high.high)


def test_the_tail_of_a_mean_of_draws():
    pool = [-1.0, 0.0, 0.0, 0.5]
    sums = [sum(draws) for draws in itertools.product(pool, repeat=4)]
    for observed in (-0.5, -0.25, 0.0, 0.125):
        assert lower_tail(pool, 4, observed) == pytest.approx(np.mean([total <= 4 * observed + 1e-9 for total in sums]))
    assert lower_tail([], 3, 0.0) == 1.0


def test_holm_steps_down():
    assert holm([0.01, 0.04, 0.03, 0.005], 0.05) == [True, False, False, True]
    assert holm([], 0.05) == []
