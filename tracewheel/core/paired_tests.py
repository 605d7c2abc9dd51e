"""Tests and intervals for the mean of paired differences in [-1, 1], one for each task, that hold far in the tail.

A gate that is run each night tests at levels near 1 in 10,000, where a bootstrap of 2,000 resamples has no resolution.
These are exact, or solved in closed form up to a root; none draws random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from tracewheel.core.statistics import Interval

Vector = npt.NDArray[np.float64]

# Differences are counted in these units: multiples of 1/2 to 1/8 of a sampled rate, halved, are whole numbers of them.
UNITS = 1680
LARGEST_SUM = 1 << 17
HALVINGS = 60


def sign_flip_p(differences: npt.ArrayLike) -> float:
    """One-sided p-value of a positive mean: the randomisation test of paired differences (Fisher 1935, Pitman 1937).

    The probability, when each difference has either sign with probability 1/2, of a sum at least as large as the observed
    one. Exact when the two policies are exchangeable on each task. For differences in {-1, 0, 1} it is McNemar's exact
    one-sided test. The distribution is computed in whole through its characteristic function, a product of cosines.

    Args:
        differences: One for each task, in [-1, 1]. Values that are not multiples of 1/1680 are rounded symmetrically,
            which leaves the test exact.
    """
    steps = _whole(np.asarray(differences, dtype=np.float64))
    sizes, counts = np.unique(np.abs(steps[steps != 0]), return_counts=True)
    if not len(sizes):
        return 1.0
    largest, observed = int((sizes * counts).sum()), int(steps.sum())
    # All sums have the parity of the largest: position j holds the sum 2j - largest.
    places = largest + 1
    angles = np.pi * np.arange(places) / places
    characteristic = np.ones(places)
    for size, count in zip(sizes, counts, strict=True):
        characteristic *= np.cos(size * angles) ** count
    # E[exp(2 pi i k J / places)] with J = (sum + largest) / 2 is the characteristic function at 2 pi k / (2 places).
    chances = np.fft.fft(characteristic * np.exp(1j * largest * angles)).real / places
    return float(min(1.0, max(0.0, chances[(observed + largest) // 2 :].sum())))


def likelihood_root(differences: npt.ArrayLike, mean: float) -> float:
    """Signed root of the empirical likelihood ratio of `mean` for differences in [-1, 1] (Owen 1988).

    About standard normal when `mean` is the true one: a value of 1.96 says what a z-value of 1.96 says. Its square is
    twice the largest log-wealth of a bet against `mean` with a fixed stake (Honda and Takemura 2010; Waudby-Smith and
    Ramdas 2024), with stakes that a difference of -1 (or 1) could not ruin, seen or not. It follows the skewness of the
    differences, which a t-test does not.

    Returns:
        Positive where the observed mean is above `mean`.
    """
    values, counts = np.unique(np.asarray(differences, dtype=np.float64), return_counts=True)
    return _likelihood_root(values, counts.astype(np.float64), mean)


def mean_interval(lowest: npt.ArrayLike, highest: npt.ArrayLike, level: float) -> Interval:
    """Interval of a mean of differences that are only known to lie between `lowest` and `highest`, task by task.

    Its lower end comes from the lowest values and its upper end from the highest, each by the empirical likelihood, so
    that missing episodes widen it by their worst case.

    Args:
        lowest: Smallest possible difference of each task; `highest` the largest; equal where nothing is missing.
        level: Error probability of each end.
    """
    z = -NormalDist().inv_cdf(level) if level > 0 else math.inf
    if not math.isfinite(z):
        return Interval(-1.0, 1.0)
    low = _end(np.asarray(lowest, dtype=np.float64), z)
    high = -_end(-np.asarray(highest, dtype=np.float64), z)
    return Interval(low, high)


def lower_tail(pool: npt.ArrayLike, n: int, observed_mean: float) -> float:
    """Probability that the mean of `n` independent draws from `pool` is at most `observed_mean`; 1 for an empty pool."""
    values = np.asarray(pool, dtype=np.float64)
    if not len(values):
        return 1.0
    steps = _whole(np.append(values, observed_mean * n), most=LARGEST_SUM // max(1, n))
    draws, observed = steps[:-1], int(steps[-1])
    least = int(draws.min())
    counts = np.bincount(draws - least)
    places = n * (len(counts) - 1) + 1
    chances = np.fft.irfft(np.fft.rfft(counts / len(values), 2 * places) ** n, 2 * places)
    last = observed - n * least
    return float(min(1.0, max(0.0, chances[: max(0, min(last + 1, places))].sum())))


def holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Which of several hypotheses Holm's step-down test (1979) rejects: no true one, with probability 1 - `level`."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    rejected = [False] * len(p_values)
    for rank, place in enumerate(order):
        if p_values[place] > level / (len(p_values) - rank):
            break
        rejected[place] = True
    return rejected


def _whole(values: Vector, most: int = 0) -> npt.NDArray[np.int64]:
    """Values as whole numbers of a common unit, coarser where a table of their sums would be too large.

    Args:
        most: Largest size of a single value; 0 to bound the sum of all sizes.
    """
    steps = _rounded(values, UNITS)
    size = np.abs(steps).max() if most else np.abs(steps).sum()
    if size > (most or LARGEST_SUM):
        steps = _rounded(values, UNITS * (most or LARGEST_SUM) / float(size))
    return steps


def _rounded(values: Vector, units: float) -> npt.NDArray[np.int64]:
    steps = np.sign(values).astype(np.int64) * np.floor(np.abs(values) * units + 0.5).astype(np.int64)
    return steps // (int(np.gcd.reduce(steps)) or 1)


def _end(differences: Vector, z: float) -> float:
    """The mean below the observed one at which the likelihood root is z."""
    values, counts = np.unique(differences, return_counts=True)
    weights = counts.astype(np.float64)
    low, high = -1.0, float(np.average(values, weights=weights))
    at_low, at_high, middle = math.inf, -z, high - z * _standard_error(differences)
    while high - low > 1e-10:
        if not low < middle < high:
            middle = (low + high) / 2
        found = _likelihood_root(values, weights, middle) - z
        if abs(found) < 1e-9:
            return middle
        # The root is nearly straight in the mean; halving the end that stays (the Illinois rule) keeps both ends moving.
        if found > 0:
            low, at_low, at_high = middle, found, at_high / 2
        else:
            high, at_high, at_low = middle, found, at_low / 2
        middle = low + (high - low) * at_low / (at_low - at_high) if math.isfinite(at_low) else low
    return low


def _standard_error(differences: Vector) -> float:
    return float(differences.std()) / math.sqrt(len(differences))


def _likelihood_root(values: Vector, counts: Vector, mean: float) -> float:
    offsets = values - mean
    drift = float((counts * offsets).sum())
    if drift < 0:
        return -_likelihood_root(-values, counts, -mean)
    if drift == 0:
        return 0.0
    if mean <= -1.0:
        return math.inf
    largest = 1.0 / (mean + 1.0)
    low, high, stake = 0.0, largest, largest * 0.5
    for _ in range(HALVINGS):
        factors = 1.0 + stake * offsets
        slope = float((counts * offsets / factors).sum())
        if slope > 0:
            low = stake
        else:
            high = stake
        curvature = float((counts * (offsets / factors) ** 2).sum())
        step = stake + slope / curvature
        following = step if low < step < high else (low + high) / 2
        if abs(following - stake) <= 1e-12 * largest:
            break
        stake = following
    factors = 1.0 + stake * offsets
    return math.sqrt(max(0.0, 2.0 * float((counts * np.log(factors)).sum())))
