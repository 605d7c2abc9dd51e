"""Intervals and estimates against numbers worked out by hand or published."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.core.statistics import (
    bootstrap_interval,
    mcnemar_mid_p,
    paired_difference,
    pass_at_k,
    rate_interval,
    stratified_shift,
    wilson_interval,
)


@pytest.mark.parametrize(
    "successes, n, low, high",
    [
        # Newcombe (1998), Table I, score method without continuity correction.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 0.8830, 1.0000),
    ],
)
def test_wilson_against_published_intervals(successes, n, low, high):
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=1e-4)


def test_wilson_of_no_trials_and_of_impossible_counts():
    assert wilson_interval(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError):
        wilson_interval(5, 4)


def test_bootstrap_of_a_fair_sample_matches_the_normal_interval():
    values = np.array([1.0] * 100 + [0.0] * 100)
    low, high = bootstrap_interval(values, resamples=10000)
    half = 1.959964 * math.sqrt(0.25 / 200)
    assert (low, high) == pytest.approx((0.5 - half, 0.5 + half), abs=0.01)
    assert bootstrap_interval(values, seed=3) == bootstrap_interval(values, seed=3)


def test_paired_difference_of_constant_vectors_is_exact():
    difference, interval = paired_difference([1, 1, 1, 1], [0, 0, 0, 0])
    assert (difference, interval) == (1.0, (1.0, 1.0))


def test_pairing_narrows_the_interval():
    baseline = np.array([1.0] * 60 + [0.0] * 60)
    challenger = np.array([1.0] * 80 + [0.0] * 40)
    difference, paired = paired_difference(challenger, baseline, resamples=4000)
    _, shuffled = paired_difference(challenger, np.random.default_rng(0).permutation(baseline), resamples=4000)
    assert difference == pytest.approx(20 / 120)
    # By hand: 20 of 120 differences are 1, so the standard error is sqrt(p(1-p)/n).
    half = 1.959964 * math.sqrt(1 / 6 * 5 / 6 / 120)
    assert paired == pytest.approx((1 / 6 - half, 1 / 6 + half), abs=0.015)
    assert shuffled.high - shuffled.low > paired.high - paired.low


def test_large_inputs_are_resampled_in_chunks():
    values = np.linspace(0, 1, 30_000)
    low, high = bootstrap_interval(values, resamples=101)
    assert 0.49 < low < 0.5 < high < 0.51


@pytest.mark.parametrize("first, second", [([], []), ([1.0], [1.0, 0.0]), ([math.nan], [1.0])])
def test_empty_or_non_finite_vectors_are_errors(first, second):
    with pytest.raises(ValueError):
        paired_difference(first, second)


@pytest.mark.parametrize(
    "gained, lost, p",
    [
        (0, 0, 1.0),
        (3, 3, 1.0),
        (1, 0, 0.5),
        # n = 10, smaller = 1: 2 * (1 + 10) / 1024 - 10 / 1024
        (9, 1, 12 / 1024),
        (1, 9, 12 / 1024),
        # Fagerland et al. (2013), airway hyper-responsiveness: 1 against 7.
        (7, 1, 0.039),
    ],
)
def test_mcnemar_mid_p(gained, lost, p):
    assert mcnemar_mid_p(gained, lost) == pytest.approx(p, abs=5e-4 if p == 0.039 else 1e-12)


def test_mcnemar_holds_for_thousands_of_tasks():
    assert 0.0 <= mcnemar_mid_p(3000, 2000) < 1e-40
    assert mcnemar_mid_p(2000, 2000) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "n, correct, k, expected", [(4, 1, 1, 0.25), (4, 1, 4, 1.0), (4, 2, 2, 5 / 6), (5, 0, 3, 0.0), (10, 3, 5, 11 / 12)]
)
def test_pass_at_k_by_hand(n, correct, k, expected):
    assert pass_at_k(n, correct, k) == pytest.approx(expected)


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_success(case):
    n, correct, k = case
    subsets = list(itertools.combinations([1] * correct + [0] * (n - correct), k))
    assert pass_at_k(n, correct, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_beyond_n_is_an_error():
    with pytest.raises(ValueError, match="pass@5"):
        pass_at_k(4, 1, 5)


def test_intervals_at_0_and_100_percent_have_a_width():
    assert rate_interval([1.0] * 29) == wilson_interval(29, 29)
    mixed = [0.25, 0.5, 1.0, 1.0]
    assert rate_interval(mixed, seed=2) == bootstrap_interval(mixed, seed=2)
    with pytest.raises(ValueError):
        rate_interval([])


def test_a_shift_in_one_stratum_is_the_z_of_the_hypergeometric_distribution():
    from scipy.stats import hypergeom

    for hits, n, old_hits, old_n in ((2, 20, 15, 30), (9, 12, 3, 40), (0, 5, 1, 7)):
        new, old = [1.0] * hits + [0.0] * (n - hits), [1.0] * old_hits + [0.0] * (old_n - old_hits)
        shift = stratified_shift([(new, old)])
        drawn = hypergeom(n + old_n, hits + old_hits, n)
        assert shift.z == pytest.approx((hits - drawn.mean()) / drawn.std())
        assert (shift.observed, shift.expected, shift.n) == pytest.approx((hits / n, old_hits / old_n, n))


def test_a_shift_of_the_mix_alone_is_no_shift():
    # Simpson's paradox: 0.2 after 0.8 in all, and nothing changed in either stratum.
    easy, hard = ([1.0] * 9 + [0.0]), ([1.0] + [0.0] * 9)
    shift = stratified_shift([(easy, easy * 8), (hard * 8, hard)])
    assert shift.z == pytest.approx(0.0)
    assert shift.observed == pytest.approx(shift.expected) == pytest.approx(17 / 90)
    assert stratified_shift([([1.0], []), ([], [0.0])]).n == 0


def test_shifts_without_a_change_are_standard_normal():
    rng = np.random.default_rng(3)
    rates = rng.uniform(0.05, 0.95, 20)
    z = [stratified_shift([(rng.random(8) < rate, rng.random(24) < rate) for rate in rates]).z for _ in range(400)]
    assert abs(np.mean(z)) < 0.15
    assert np.std(z) == pytest.approx(1.0, abs=0.1)
