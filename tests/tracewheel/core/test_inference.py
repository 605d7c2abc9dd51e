"""Tests and intervals: against full enumeration, their definitions, and published figures and implementations."""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracewheel.core.inference import (
    components_needed,
    gain_z,
    holm,
    likelihood_root,
    mean_interval,
    pass_at_k,
    precision,
    rate_interval,
    sign_flip_p,
    stratified_shift,
    wilson_interval,
)

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


def test_holm_steps_down():
    assert holm([0.01, 0.04, 0.03, 0.005], 0.05) == [True, False, False, True]
    assert holm([], 0.05) == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(EIGHTHS, st.integers(0, 3)), min_size=1, max_size=12))
def test_the_randomisation_test_flips_whole_components(pairs):
    differences, components = map(np.array, zip(*pairs, strict=True))
    sums = np.array([differences[components == one].sum() for one in set(components.tolist())])
    flipped = [np.dot(signs, sums) for signs in itertools.product((-1.0, 1.0), repeat=len(sums))]
    expected = np.mean(np.array(flipped) >= sums.sum() - 1e-9)
    assert sign_flip_p(differences, components) == pytest.approx(float(expected), abs=1e-12)


# statsmodels 0.15.0: OLS(values, ones).fit(cov_type="cluster"), which divides by G - 1 as CR2 does with equal components.
CLUSTERED = [0.5, 0.25, -0.125, 0.75, -1.0, 1.0, 0.375, 0.0, 0.25, 0.5, -0.5, 0.125]
PARTS = ["a", "a", "a", "b", "b", "b", "c", "c", "c", "d", "d", "d"]


def test_the_standard_error_and_its_degrees_of_freedom():
    known = precision(CLUSTERED, PARTS)
    means = np.array(CLUSTERED).reshape(4, 3).mean(axis=1)
    alone = precision(CLUSTERED).error
    assert known.error == pytest.approx(max(means.std(ddof=1) / 2.0, alone)) and known.design >= 1.0
    assert (known.freedom, known.components, known.effective) == (pytest.approx(3.0), 4, pytest.approx(4.0))
    uneven = precision(CLUSTERED, ["a"] * 9 + ["b", "c", "d"])
    assert uneven.components == 4 and uneven.effective < 2.5, "one component has most of the tasks"
    assert precision(CLUSTERED) == precision(CLUSTERED, range(12)) and math.isinf(precision(CLUSTERED).freedom)


def test_the_degrees_of_freedom_are_bell_and_mccaffreys():
    """tr(B)^2 / tr(B^2) of the quadratic form in independent sums, written out as matrices."""
    sizes = np.array([7.0, 3.0, 3.0, 1.0, 1.0])
    n = sizes.sum()
    centred = np.eye(5) - np.outer(sizes, np.ones(5)) / n
    form = centred.T @ np.diag(1 / (1 - sizes / n)) @ centred @ np.diag(sizes)
    labels = np.repeat(np.arange(5), sizes.astype(int))
    values = np.random.default_rng(0).normal(size=int(n))
    assert precision(values, labels).freedom == pytest.approx(np.trace(form) ** 2 / np.trace(form @ form))


def test_what_hangs_together_widens_an_interval_and_what_is_alone_does_not():
    stream = np.random.default_rng(1)
    shared = np.repeat(stream.choice([-0.25, 0.0, 0.5], 20), 5)
    values, labels = shared + stream.choice([-0.1, 0.1], 100), np.repeat(np.arange(20), 5)
    alone, together = (mean_interval(values, values, 0.025, given) for given in (None, labels))
    assert together.high - together.low > 1.6 * (alone.high - alone.low)
    assert mean_interval(values, values, 0.025, range(100)) == alone
    assert 0.0 < gain_z(values, labels) < gain_z(values)
    assert gain_z(values) == likelihood_root(values, 0.0)
    assert mean_interval(values, values, 0.025, ["one"] * 100) == (-1.0, 1.0), "one component tells nothing"


def test_too_few_components_cannot_show_a_gain():
    gains = [1.0] * 200
    assert sign_flip_p(gains, np.repeat(range(10), 20)) == pytest.approx(2.0**-10)
    assert [components_needed(level) for level in (0.025, 1e-4, 2.0**-10)] == [6, 14, 10]


def test_no_interval_is_without_a_width():
    for values in ([0.0] * 50, [0.02] * 50):
        assert (
            all(end != 0.0 for end in mean_interval(values, values, 0.025)) and mean_interval(values, values, 0.025).high > 0.03
        )
        assert rate_interval(values).high > 0.05
    assert rate_interval([1.0] * 29) == wilson_interval(29, 29)
    # Ten tasks with five episodes each, all successes: near 1 a task counts as one outcome.
    low, high = rate_interval([1.0] * 50, np.repeat(range(10), 5))
    assert low < wilson_interval(10, 10).low + 0.02 and high == 1.0
    with pytest.raises(ValueError):
        rate_interval([])


def test_a_rate_of_independent_episodes_is_known_as_well_as_they_tell():
    stream = np.random.default_rng(2)
    means = stream.binomial(4, 0.5, 300) / 4
    low, high = rate_interval(means)
    half = 1.96 * math.sqrt(0.25 / 1200)
    assert (low, high) == pytest.approx((means.mean() - half, means.mean() + half), abs=0.006)
    episodes = np.repeat(stream.binomial(1, 0.5, 50), 4).astype(float)
    low, high = rate_interval(episodes, np.repeat(range(50), 4))
    assert (low, high) == pytest.approx(wilson_interval(episodes.mean() * 50, 50), abs=0.02)


def test_rewards_beyond_0_and_1_have_students_interval():
    from scipy.stats import ttest_1samp

    rewards = [-0.5, 1.0, 1.0, 0.25, 2.0]
    assert rate_interval(rewards) == pytest.approx(tuple(ttest_1samp(rewards, 0.0).confidence_interval(0.95)))


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
