"""Intervals and estimates for success rates.

SciPy has Wilson's interval and the bootstrap too. They agree with these to the last bit or the one before, which would
change stored figures, and importing `scipy.stats` takes longer than any interval here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Vector = npt.ArrayLike


class Interval(NamedTuple):
    """Lower and upper end."""

    low: float
    high: float


def wilson_interval(successes: float, n: int, confidence: float = 0.95) -> Interval:
    """Wilson score interval (1927) of a rate over `n` independent trials; (0, 1) when n is 0.

    It is too narrow for dependent trials, such as several rollouts of a task; use `bootstrap_interval` over the tasks'
    means for those.
    """
    if not 0 <= successes <= max(n, 0):
        raise ValueError(f"{successes} successes of {n}")
    if n == 0:
        return Interval(0.0, 1.0)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return Interval(low, high)


def bootstrap_interval(values: Vector, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """Percentile bootstrap interval of the mean of `values`, one for each task.

    Raises:
        ValueError: there are no values, or one is not finite.
    """
    observed = np.asarray(values, dtype=np.float64)
    if observed.ndim != 1 or observed.size == 0 or not np.isfinite(observed).all():
        raise ValueError("a bootstrap needs at least one value, all finite")
    stream = np.random.default_rng(seed)
    # Chunks of resamples bound the memory at about 8 MB, whatever the number of tasks.
    chunk = max(1, 1_000_000 // observed.size)
    means = [
        observed[stream.integers(observed.size, size=(min(chunk, resamples - start), observed.size))].mean(axis=1)
        for start in range(0, resamples, chunk)
    ]
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return Interval(float(low), float(high))


def rate_interval(values: Vector, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0) -> Interval:
    """Interval of the mean of `values` in [0, 1], one for each task.

    Wilson's interval where every value is 0 or 1, which is valid at 0% and 100% too. Otherwise a value is the mean of
    several rollouts, and the interval is the bootstrap over tasks.

    Raises:
        ValueError: there are no values, or one is not finite.
    """
    observed = np.asarray(values, dtype=np.float64)
    if observed.size and np.isin(observed, (0.0, 1.0)).all():
        return wilson_interval(float(observed.sum()), observed.size, confidence)
    return bootstrap_interval(observed, confidence=confidence, resamples=resamples, seed=seed)


def paired_difference(
    challenger: Vector, baseline: Vector, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, Interval]:
    """Mean of challenger minus baseline over the same tasks, with its percentile bootstrap interval.

    Tasks are resampled in pairs, so that difficulty common to both policies does not widen the interval.

    Raises:
        ValueError: the vectors differ in length, are empty, or hold a value that is not finite.
    """
    first, second = np.asarray(challenger, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(f"{first.size} values cannot be paired with {second.size}")
    differences = first - second
    interval = bootstrap_interval(differences, confidence=confidence, resamples=resamples, seed=seed)
    return float(differences.mean()), interval


def mcnemar_mid_p(gained: int, lost: int) -> float:
    """Two-sided mid-p value of McNemar's test (Fagerland, Lydersen and Laake 2013).

    Args:
        gained: Tasks that only the challenger solves.
        lost: Tasks that only the baseline solves.
    """
    n = gained + lost
    if gained < 0 or lost < 0:
        raise ValueError(f"negative counts: {gained} gained, {lost} lost")
    if n == 0:
        return 1.0
    smaller = min(gained, lost)
    ways = 2 * sum(math.comb(n, k) for k in range(smaller + 1)) - math.comb(n, smaller)
    return float(ways / 2**n)


def pass_at_k(n: int, correct: int, k: int) -> float:
    """Probability that at least one of k rollouts succeeds, estimated from `n` rollouts with `correct` successes.

    The unbiased estimate 1 - C(n - correct, k) / C(n, k) of Chen et al. (2021).

    Raises:
        ValueError: k is larger than n, or `correct` is not within 0 to n.
    """
    if not 1 <= k <= n or not 0 <= correct <= n:
        raise ValueError(f"pass@{k} of {n} rollouts with {correct} correct")
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


class Shift(NamedTuple):
    """How the values of a sample differ from what a reference sample leads one to expect, over all strata.

    Attributes:
        observed: Mean of the sample's values; NaN without a stratum that both have.
        expected: Mean that the reference's strata give for the same mix.
        z: Standard deviations that the sample lies above the reference under the null hypothesis.
        n: Number of the sample's values that were compared.
    """

    observed: float
    expected: float
    z: float
    n: int


def stratified_shift(strata: Iterable[tuple[Vector, Vector]]) -> Shift:
    """Compare a sample with a reference, stratum by stratum.

    The statistic is Mantel and Haenszel's (1959), in its form for values: in each stratum the sum of the sample's values minus
    its expectation when the values of both are shuffled, added up and divided by the standard deviation of that sum. With
    values of 0 and 1 it is the Cochran-Mantel-Haenszel test without the continuity correction. A different mix of strata does
    not move it, and a stratum that only one side has says nothing.

    Args:
        strata: (sample's values, reference's values) of each stratum.
    """
    excess = variance = total = expected = 0.0
    n = 0
    for sample, reference in strata:
        new, old = np.asarray(sample, dtype=np.float64), np.asarray(reference, dtype=np.float64)
        if not new.size or not old.size:
            continue
        both = np.concatenate([new, old])
        excess += new.sum() - new.size * both.mean()
        variance += new.size * old.size / both.size * both.var(ddof=1)
        total, expected, n = total + new.sum(), expected + new.size * old.mean(), n + new.size
    if not n:
        return Shift(math.nan, math.nan, 0.0, 0)
    return Shift(total / n, expected / n, excess / math.sqrt(variance) if variance > 0 else 0.0, n)
