"""Inference from episodes that hang together: tests and intervals of mean differences and of rates.

The unit is the task. Tasks that share a user, a session, a template or a copy form a component, and the outcomes of one
component may be alike. Every function takes `components`, a label a task; None stands for tasks that are independent. What
hangs together widens an interval by the design effect, the variance of the mean between components over that of independent
tasks (Kish 1965), and Student's t replaces the normal distribution, with the degrees of freedom of Bell and McCaffrey (2002).
No function draws random numbers, and all hold far in the tail: a nightly gate tests at levels near 1 in 10,000.

SciPy has Wilson's interval too; it agrees with this one to the last bit or the one before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Labels = npt.ArrayLike | None

# Differences are counted in these units: multiples of 1/2 to 1/8 of a sampled rate, halved, are whole numbers of them.
UNITS = 1680
LARGEST_SUM = 1 << 17
HALVINGS = 60


class Interval(NamedTuple):
    """Lower and upper end."""

    low: float
    high: float


class Precision(NamedTuple):
    """How well a mean over tasks is known.

    Attributes:
        error: Its standard error, robust to what hangs together (CR2).
        design: Design effect, at least 1: the variance of the mean over that with independent tasks.
        freedom: Degrees of freedom of the design effect: infinite with independent tasks, which have none to estimate; 0 with
            fewer than two components.
        components: Number of components.
        effective: Components of equal size that would tell as much of the error.
    """

    error: float
    design: float
    freedom: float
    components: int
    effective: float


def precision(values: npt.ArrayLike, components: Labels = None) -> Precision:
    """How well the mean of `values` is known.

    The variance is CR2 of Bell and McCaffrey (2002) for a mean: the sum over components of their squared sums of residuals,
    each over 1 - m/n for a component of m of the n tasks. The degrees of freedom are Satterthwaite's with tasks that are
    independent (equation 11 there): G - 1 with G components of equal size, fewer with unequal ones. Components that are alike
    by chance do not narrow anything. Where all values are equal, a component counts as one task.
    """
    x, labels, sizes = _grouped(values, components)
    n = len(x)
    if len(sizes) < 2:
        return Precision(math.inf, 1.0, 0.0, len(sizes), float(len(sizes)))
    residuals = x - x.mean()
    single = float(residuals @ residuals) / (n - 1) / n
    if len(sizes) == n:
        return Precision(math.sqrt(single), 1.0, math.inf, n, float(n))
    lift = 1.0 / (1.0 - sizes / n)
    sums = np.bincount(labels, residuals)
    variance = max(single, float((lift * sums**2).sum()) / n**2)
    design = variance / single if single > 0.0 else float((sizes**2).sum()) / n
    freedom = _freedom(sizes)
    return Precision(math.sqrt(variance), design, freedom, len(sizes), freedom + 1.0)


def sign_flip_p(differences: npt.ArrayLike, components: Labels = None) -> float:
    """One-sided p-value of a positive mean: the randomisation test of paired differences (Fisher 1935, Pitman 1937).

    The probability, when the differences of each component have either sign with probability 1/2, of a sum at least as large
    as the observed one. Exact when the two policies are exchangeable on each component. For independent differences in
    {-1, 0, 1} it is McNemar's exact one-sided test. The distribution is computed in whole through its characteristic function,
    a product of cosines.

    Args:
        differences: One for each task, in [-1, 1]. Sums of a component that are not multiples of 1/1680 are rounded
            symmetrically, which leaves the test exact.
        components: A label for each.
    """
    steps = _whole(component_sums(differences, components))
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


def component_sums(values: npt.ArrayLike, components: Labels = None) -> Vector:
    """The sum of the values of each component."""
    x, labels, _ = _grouped(values, components)
    return x if components is None else np.bincount(labels, x, minlength=0).astype(np.float64)


def components_needed(level: float) -> int:
    """The fewest components with which flipping signs can reject at this level: no p-value is below 2^-components."""
    return math.ceil(-math.log2(level)) if level > 0.0 else 0


def gain_z(differences: npt.ArrayLike, components: Labels = None, mean: float = 0.0) -> float:
    """How far the mean of differences in [-1, 1] lies above `mean`, as a standard normal value when that is the true one.

    The signed root of the empirical likelihood ratio (`likelihood_root`), over the root of the design effect as Wu and Rao
    (2006) do for surveys; where that is estimated, Student's t has the tail of the normal value returned. 0 with fewer than two
    components.
    """
    from scipy.special import ndtri, stdtr

    known = precision(differences, components)
    if known.freedom <= 0.0:
        return 0.0
    scaled = likelihood_root(differences, mean) / math.sqrt(known.design)
    if math.isinf(known.freedom):
        return scaled
    return math.copysign(float(-ndtri(stdtr(known.freedom, -abs(scaled)))), scaled)


def student_tail(excess: float, error: float, freedom: float) -> float:
    """One-sided p-value of Student's test of an excess with this standard error; 1 where nothing is known of the error."""
    from scipy.special import stdtr

    if freedom <= 0 or not error > 0.0:
        return float(excess <= 0.0 or freedom <= 0)
    return float(stdtr(freedom, -excess / error))


def likelihood_root(differences: npt.ArrayLike, mean: float) -> float:
    """Signed root of the empirical likelihood ratio of `mean` for independent differences in [-1, 1] (Owen 1988).

    About standard normal when `mean` is the true one: a value of 1.96 says what a z-value of 1.96 says. Its square is
    twice the largest log-wealth of a bet against `mean` with a fixed stake (Honda and Takemura 2010; Waudby-Smith and
    Ramdas 2024), with stakes that a difference of -1 (or 1) could not ruin, seen or not. It follows the skewness of the
    differences, which a t-test does not.

    Returns:
        Positive where the observed mean is above `mean`.
    """
    values, counts = np.unique(np.asarray(differences, dtype=np.float64), return_counts=True)
    return _likelihood_root(values, counts.astype(np.float64), mean)


def mean_interval(lowest: npt.ArrayLike, highest: npt.ArrayLike, level: float, components: Labels = None) -> Interval:
    """Interval of a mean of differences that are only known to lie between `lowest` and `highest`, task by task.

    Its lower end comes from the lowest values and its upper end from the highest, each where `gain_z` has its quantile, so
    that missing episodes widen it by their worst case. It has a width where all differences are equal, too.

    Args:
        lowest: Smallest possible difference of each task; `highest` the largest; equal where nothing is missing.
        level: Error probability of each end.
        components: A label for each task.
    """
    return Interval(_end(lowest, level, components), -_end(-np.asarray(highest, dtype=np.float64), level, components))


def wilson_interval(successes: float, n: float, confidence: float = 0.95, quantile: float | None = None) -> Interval:
    """Wilson score interval (1927) of a rate over `n` independent trials; (0, 1) when n is 0.

    Args:
        successes: Of the trials; `n` need not be a whole number.
        confidence: Of both sides.
        quantile: In place of the normal distribution's.
    """
    if not 0 <= successes <= max(n, 0):
        raise ValueError(f"{successes} successes of {n}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2) if quantile is None else quantile
    if n == 0 or not math.isfinite(z):
        return Interval(0.0, 1.0)
    rate = successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return Interval(low, high)


PSEUDO = 0.5  # tasks' worth of a success and of a failure that steady the design effect of a rate


def rate_interval(values: npt.ArrayLike, components: Labels = None, confidence: float = 0.95) -> Interval:
    """Interval of the mean of `values` in [0, 1]: outcomes, or rates of several episodes of a task.

    Wilson's interval on the effective sample size, the number of values over their design effect (Rao and Scott 1992; Korn and
    Graubard 1998): the variance between components over that of independent outcomes of 0 and 1. Few successes tell little of
    that variance, so it is estimated with half a component more of successes and of failures: near 0 and 1 a component
    counts as one outcome. Independent outcomes of 0 and 1 have Wilson's interval itself, and values beyond 0 and 1 (rewards)
    Student's.

    Raises:
        ValueError: there are no values, or one is not finite.
    """
    x, labels, sizes = _grouped(values, components)
    n, total = len(x), float(x.sum())
    if not n or not np.isfinite(x).all():
        raise ValueError("an interval of a rate needs at least one value, all finite")
    if len(sizes) == n and np.isin(x, (0.0, 1.0)).all():
        return wilson_interval(total, n, confidence)
    quantile = _quantile(0.5 - confidence / 2, _freedom(sizes))
    if x.min() < 0.0 or x.max() > 1.0:
        half = quantile * precision(x, components).error
        return Interval(total / n - half, total / n + half)
    steadied = (total + PSEUDO) / (n + 2 * PSEUDO)
    added = PSEUDO * (1.0 - 2.0 * steadied * (1.0 - steadied))
    alone = float(((x - steadied) ** 2).sum()) + added
    lift = (1.0 - 1.0 / n) / (1.0 - np.minimum(sizes / n, 1.0 - 1.0 / n))
    sums = np.bincount(labels, x - steadied)
    together = float((lift * sums**2).sum()) + added * float((sizes**2).sum()) / n
    design = max(alone, together) / ((n + 2 * PSEUDO) * steadied * (1.0 - steadied))
    return wilson_interval(min(total, n) / design, n / design, confidence, quantile)


def holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Which of several hypotheses Holm's step-down test (1979) rejects: no true one, with probability 1 - `level`."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    rejected = [False] * len(p_values)
    for rank, place in enumerate(order):
        if p_values[place] > level / (len(p_values) - rank):
            break
        rejected[place] = True
    return rejected


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


def stratified_shift(strata: Iterable[tuple[npt.ArrayLike, npt.ArrayLike]]) -> Shift:
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


def _grouped(values: npt.ArrayLike, components: Labels) -> tuple[Vector, npt.NDArray[np.int64], Vector]:
    """The values, the number of each one's component, and the components' sizes."""
    x = np.asarray(values, dtype=np.float64)
    if components is None:
        return x, np.arange(len(x)), np.ones(len(x))
    labels = np.unique(np.asarray(components), return_inverse=True)[1]
    if labels.shape != x.shape:
        raise ValueError(f"{len(x)} values, and components of {len(labels)}")
    return x, labels, np.bincount(labels).astype(np.float64)


def _freedom(sizes: Vector) -> float:
    """Degrees of freedom of CR2's variance of a mean over components of these sizes, tr(B)^2 / tr(B^2) in closed form."""
    n = float(sizes.sum())
    if len(sizes) < 2:
        return 0.0
    lifted = sizes**2 / (1.0 - sizes / n)
    squared = float((sizes**2).sum()) + (float(lifted.sum()) ** 2 - float((lifted**2).sum())) / n**2
    return n**2 / squared


def _quantile(level: float, freedom: float) -> float:
    """The value that Student's t exceeds with this probability; the normal's with infinite degrees of freedom."""
    if level <= 0.0 or freedom <= 0.0:
        return math.inf
    if math.isinf(freedom):
        return -NormalDist().inv_cdf(level)
    from scipy.special import stdtrit

    return float(-stdtrit(freedom, level))


def _whole(values: Vector) -> npt.NDArray[np.int64]:
    """Values as whole numbers of a common unit, coarser where a table of their sums would be too large."""
    steps = _rounded(values, UNITS)
    if (size := np.abs(steps).sum()) > LARGEST_SUM:
        steps = _rounded(values, UNITS * LARGEST_SUM / float(size))
    return steps


def _rounded(values: Vector, units: float) -> npt.NDArray[np.int64]:
    steps = np.sign(values).astype(np.int64) * np.floor(np.abs(values) * units + 0.5).astype(np.int64)
    return steps // (int(np.gcd.reduce(steps)) or 1)


def _end(differences: npt.ArrayLike, level: float, components: Labels) -> float:
    """The mean below the observed one at which the likelihood root is Student's quantile, times the root of the design."""
    known = precision(differences, components)
    z = _quantile(level, known.freedom) * math.sqrt(known.design)
    if not math.isfinite(z):
        return -1.0
    values, counts = np.unique(np.asarray(differences, dtype=np.float64), return_counts=True)
    weights = counts.astype(np.float64)
    low, high = -1.0, float(np.average(values, weights=weights))
    at_low, at_high, middle = math.inf, -z, high - z * known.error / math.sqrt(known.design)
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
