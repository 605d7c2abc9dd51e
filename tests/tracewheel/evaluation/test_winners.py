"""The gain to expect of a winner: next to the true one where the measured one is not, with one look and with several."""

import math

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import norm

from tracewheel.evaluation.candidate import planned_looks
from tracewheel.evaluation.winners import expected_gain

ERROR = 0.022


@pytest.mark.parametrize("level", [0.0032, 5.1e-5])
@pytest.mark.parametrize("above", [0.001, 0.03, 0.15])
def test_it_is_the_mean_of_the_conditional_likelihood(level, above):
    """Integrated with SciPy."""
    cut = norm.isf(level) * ERROR
    measured = cut + above

    def likelihood(gain):
        return norm.pdf((measured - gain) / ERROR) / norm.sf((cut - gain) / ERROR)

    end = measured + 9 * ERROR
    whole = integrate.quad(likelihood, 0.0, end, points=[cut, measured])[0]
    mean = integrate.quad(lambda gain: gain * likelihood(gain), 0.0, end, points=[cut, measured])[0] / whole
    assert expected_gain(measured, [(ERROR, level)]) == pytest.approx(min(mean, measured), rel=1e-5)


@pytest.mark.parametrize(("level", "measured", "expected"), [(0.0032, 0.074, 0.051), (5.1e-5, 0.094, 0.056)])
def test_a_true_gain_of_five_points_is_no_longer_printed_as_seven_or_nine(level, measured, expected):
    power = norm.sf(norm.isf(level) - 0.05 / ERROR)
    gains = 0.05 + ERROR * norm.isf((np.arange(400) + 0.5) / 400 * power)
    assert gains.mean() == pytest.approx(measured, abs=0.001)
    assert np.mean([expected_gain(gain, [(ERROR, level)]) for gain in gains]) == pytest.approx(expected, abs=0.001)


def test_several_looks_at_one_candidate():
    """Five nights with O'Brien and Fleming's spending: promoted at whichever look is the first to pass."""
    counts = [200, 400, 600, 800, 1000]
    looks = planned_looks(0.0006, 1000, ERROR * math.sqrt(200), counts)
    assert [error for error, _ in looks] == pytest.approx([ERROR / math.sqrt(n / 200) for n in counts])
    assert sum(level for _, level in looks) == pytest.approx(0.0006)
    assert planned_looks(0.0006, 1000, 0.3, counts[:2]) == planned_looks(0.0006, 1000, 0.3, counts)
    bounds = [norm.isf(level) * error for error, level in looks]
    means = np.random.default_rng(7).normal(0.03, ERROR, (6000, 5)).cumsum(axis=1) / np.arange(1, 6)
    found = []
    for path in means:
        for at, mean in enumerate(path):
            if mean > bounds[at]:
                found.append((mean, at))
                break
            if mean <= 0.0:
                break
    assert np.mean([mean for mean, _ in found]) > 0.036
    assert np.mean([expected_gain(mean, looks, at) for mean, at in found[:400]]) == pytest.approx(0.031, abs=0.002)


def test_a_large_gain_stays_and_none_is_raised():
    assert expected_gain(0.2, [(ERROR, 0.0032)]) == pytest.approx(0.2, abs=1e-4)
    assert expected_gain(0.9, [(ERROR, 0.0032)]) == pytest.approx(0.9)
    assert 0.0 < expected_gain(0.0601, [(ERROR, 0.0032)]) < 0.04
    assert expected_gain(0.1, [(0.0, 0.01)]) == 0.1
    assert expected_gain(-0.1, [(ERROR, 0.01)]) == 0.0
    assert 0.0 < expected_gain(0.05, [(ERROR, 0.0032)]) < 0.04  # below the normal threshold: the likelihood saw it as larger
