"""The gain to expect of a winner: what was measured is too much, because the gate promotes the lucky.

A challenger is promoted when its measured gain passes a threshold, so promoted gains are larger than the true ones on average
(the winner's curse): at a standard error of 2.2 points a true gain of 5 is measured as 7.4 where the first gate of a year
promotes it, and as 9.5 at its hundredth. `benchmarks/gate_winners.py` has what is left of that.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
HALVINGS = 50
FAR = 9.0  # standard deviations beyond which no mass is counted
NODES, WEIGHTS = np.polynomial.legendre.leggauss(80)


def expected_gain(gain: float, looks: Sequence[tuple[float, float]], at: int = 0) -> float:
    """The median-unbiased estimate of a promoted challenger's true gain, given that it was promoted.

    With `looks` at growing evidence, each at its own level, promotions are ordered by the look and then by the gain: the
    earlier, the more extreme (Tsiatis, Rosner and Mehta 1984). The estimate is the d with

        P(promoted as extremely as here; d) = P(promoted; d) / 2.

    With one look that is P(X > x | X > c; d) = 1/2, the conditional estimate of Andrews, Kitagawa and McCloskey (2024,
    "Inference on Winners", section 3). It needs no prior and no memory of other gates, and is held between 0 and the measured
    gain.

    Args:
        gain: The measured mean difference where it was promoted; above 0.
        looks: Standard error of the mean difference, in the unit of `gain`, and one-sided level: of every look that is planned,
            past and to come. Between two looks a challenger whose difference is not above 0 is dropped.
        at: Which of them promoted it.
    """
    if gain <= 0.0 or any(error <= 0.0 for error, _ in looks):
        return max(gain, 0.0)
    extreme = _Promotions(gain, looks, at)
    low, high = 0.0, gain
    if extreme.share(low) >= 0.5:
        return 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if extreme.share(middle) >= 0.5 else (middle, high)
    return (low + high) / 2


class _Promotions:
    """Probabilities of promotion by look, for any true gain d.

    The score S = information * difference has independent normal increments. Its density under d is that under 0 times
    exp(d S - d^2 information / 2), so that the densities under 0 are enough; they follow from look to look by numerical
    integration (Armitage, McPherson and Rowe 1969), each part of a look's line by Gauss and Legendre's rule.
    """

    def __init__(self, gain: float, looks: Sequence[tuple[float, float]], at: int) -> None:
        self._parts: list[
            tuple[bool, float, Vector, Vector]
        ] = []  # counts as extreme, information, scores, their masses under 0
        before: tuple[float, Vector, Vector] | None = None
        for number, (error, level) in enumerate(looks):
            information = error**-2
            unit = math.sqrt(information)
            bound = min(-NormalDist().inv_cdf(level) if level > 0.0 else math.inf, gain / error + FAR) * unit
            observed = gain * information
            bound = min(bound, observed) if number == at else bound
            end = max(bound, observed) + FAR * unit
            edges = [bound, observed, end] if number == at else [bound, end]
            for low, high in itertools.pairwise(edges):
                scores, widths = _grid(low, high)
                extreme = number < at or (number == at and low >= observed)
                self._parts.append((extreme, information, scores, widths * _density(scores, information, before)))
            scores, widths = _grid(0.0, bound)
            before = information, scores, widths * _density(scores, information, before)

    def share(self, d: float) -> float:
        """Of all promotions under d, those at least as extreme."""
        masses = [(extreme, float((mass * np.exp(d * s - d * d * i / 2)).sum())) for extreme, i, s, mass in self._parts]
        every = sum(mass for _, mass in masses)
        return sum(mass for extreme, mass in masses if extreme) / every if every > 0.0 else 0.0


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
