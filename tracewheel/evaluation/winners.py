"""The gain to expect of a winner: what was measured is too much, because the gate promotes the lucky.

A challenger is promoted when its measured gain passes a threshold, so promoted gains are larger than the true ones on average
(the winner's curse): at a standard error of 2.2 points a true gain of 5 is measured as 7.4 where the first gate of a year
promotes it, and as 9.5 at its hundredth. `benchmarks/gate_winners.py` has what is left of that, here and with other estimates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
FAR = 9.0  # standard deviations beyond which no mass is counted
NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)


def expected_gain(gain: float, looks: Sequence[tuple[float, float]], at: int = 0) -> float:
    """The mean of the true gain of a promoted challenger, given what was measured and that it was promoted.

    The likelihood of a true gain d is that of the measured gain among promotions alone,

        L(d) = phi((x - d) / s) / P(promoted; d),

    and no gain from 0 on is preferred beforehand: the estimate is the mean of L over d >= 0 (Ghosh, Zou and Wright 2008, the
    second estimate, for d of one sign; Yekutieli 2012). It needs no memory of other gates, and is never above x.

    Args:
        gain: x, the measured mean difference where it was promoted.
        looks: Standard error of the mean difference, in the unit of `gain`, and one-sided level: of every look that is planned,
            past and to come, at growing evidence. Between two looks a challenger with a difference of 0 or less is dropped.
        at: Which of them promoted it.
    """
    if gain <= 0.0 or any(error <= 0.0 for error, _ in looks):
        return max(gain, 0.0)
    error = looks[at][0]
    gains, widths = _grid(0.0, gain + FAR * error)
    weights = -(((gain - gains) / error) ** 2) / 2 - _promotions(gains, looks, at, gain)
    weights = widths * np.exp(weights - weights.max())
    return min(gain, float((gains * weights).sum() / weights.sum()))


def _promotions(gains: Vector, looks: Sequence[tuple[float, float]], at: int, gain: float) -> Vector:
    """Logarithm of the probability of promotion under each true gain.

    The score S = information * difference has independent normal increments. Its density under a gain d is that under 0 times
    exp(d S - d^2 information / 2), so that the densities under 0 are enough; they follow from look to look by numerical
    integration (Armitage, McPherson and Rowe 1969) with Gauss and Legendre's rule.
    """
    logs = []
    before: tuple[float, Vector, Vector] | None = None
    for number, (error, level) in enumerate(looks):
        information, unit = error**-2, 1.0 / error
        bound = -NormalDist().inv_cdf(level) * unit if level > 0.0 else math.inf
        bound = min(bound, gain * information) if number == at else min(bound, (gain / error + FAR) * unit)
        scores, widths = _grid(bound, max(bound, gain * information) + 2 * FAR * unit)
        with np.errstate(divide="ignore"):
            masses = np.log(widths * _density(scores, information, before))
        logs.append(masses + gains[:, None] * scores - gains[:, None] ** 2 * information / 2)
        scores, widths = _grid(0.0, bound)
        before = information, scores, widths * _density(scores, information, before)
    return np.asarray(np.logaddexp.reduce(np.concatenate(logs, axis=1), axis=1))


def _density(scores: Vector, information: float, before: tuple[float, Vector, Vector] | None) -> Vector:
    """The density under 0 of the scores at a look, for what went on from the look before."""
    if before is None:
        return _normal(scores, information)
    known, reached, mass = before
    return np.asarray(_normal(scores[:, None] - reached[None, :], information - known) @ mass)


def _normal(values: Vector, variance: float) -> Vector:
    return np.asarray(np.exp(-(values**2) / (2 * variance)) / math.sqrt(2 * math.pi * variance))


def _grid(low: float, high: float) -> tuple[Vector, Vector]:
    half = (high - low) / 2
    return low + half * (NODES + 1.0), half * WEIGHTS
