"""The gain to expect of a winner: median-unbiased over promotions, with one look and with several."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from tracewheel.evaluation.winners import expected_gain

ERROR = 0.022


@pytest.mark.parametrize("level", [0.0032, 5.1e-5])
@pytest.mark.parametrize("gain", [0.03, 0.05, 0.08, 0.15])
def test_it_is_the_conditional_estimate_of_a_truncated_normal(level, gain):
    """Solved with SciPy: P(X > x | X > c; d) = 1/2."""
    cut = norm.isf(level) * ERROR
    measured = cut + gain
    found = expected_gain(measured, [(ERROR, level)])
    logs = norm.logsf((measured - found) / ERROR) - norm.logsf((cut - found) / ERROR)
    assert found == 0.0 or math.exp(logs) == pytest.approx(0.5, abs=1e-6)
    assert 0.0 <= found <= measured


@pytest.mark.parametrize("level", [0.0032, 5.1e-5])
def test_half_of_all_promotions_expect_too_much(level):
    """A true gain of 5 points is measured as 7.4 and 9.5 on average where it is promoted, and 5 is expected in the median."""
    above = norm.sf(norm.isf(level) - 0.05 / ERROR)
    gains = 0.05 + ERROR * norm.isf(np.linspace(0.0005, 0.9995, 500) * above)
    expected = np.array([expected_gain(gain, [(ERROR, level)]) for gain in gains])
    assert gains.mean() == pytest.approx(0.074 if level > 0.001 else 0.095, abs=0.001)
    assert np.median(expected) == pytest.approx(0.05, abs=0.001)
    assert expected.mean() == pytest.approx(0.046, abs=0.002)


def test_several_looks_at_one_candidate_expect_the_true_gain():
    """Five nights with O'Brien and Fleming's spending: promoted at whichever look is the first to pass."""
    shares = np.arange(1, 6) / 5
    spent = 2 * norm.cdf(norm.ppf(0.0006 / 2) / np.sqrt(shares))
    levels = np.diff([0.0, *spent])
    errors = ERROR / np.sqrt(np.arange(1, 6))
    looks = [(float(error), float(level)) for error, level in zip(errors, levels, strict=True)]
    stream = np.random.default_rng(7)
    means = stream.normal(0.03, ERROR, (6000, 5)).cumsum(axis=1) / np.arange(1, 6)
    measured, expected = [], []
    for path in means:
        for at, mean in enumerate(path):
            if mean > norm.isf(levels[at]) * errors[at]:
                measured.append(mean)
                expected.append((mean, at))
                break
            if mean <= 0.0:
                break
    found = np.array([expected_gain(mean, looks, at) for mean, at in expected[:500]])
    assert np.mean(measured) > 0.036
    assert np.median(found) == pytest.approx(0.03, abs=0.002)


def test_a_large_gain_stays_and_a_bare_one_is_next_to_nothing():
    assert expected_gain(0.2, [(ERROR, 0.0032)]) == pytest.approx(0.2, abs=1e-4)
    assert expected_gain(0.0601, [(ERROR, 0.0032)]) == 0.0
    assert expected_gain(0.1, [(0.0, 0.01)]) == 0.1
    assert expected_gain(-0.1, [(ERROR, 0.01)]) == 0.0
