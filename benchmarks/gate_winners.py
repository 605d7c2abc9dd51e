"""What a promotion shows of a true gain: the measured difference, and the gain to expect of it (`evaluation/winners.py`).

    python benchmarks/gate_winners.py

Promotions are drawn from the distributions that the gate's tests have on 200 tasks whose differences spread by 0.31: a standard
error of 2.2 points. One look at the level of a year's first and hundredth gate, and a candidate's confirmation on five nights.
Beside the mean of the conditional likelihood stands the median-unbiased estimate. Puts the table between the marks in
`results/gate.md`.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist

import numpy as np
from measuring import between_marks, table

from tracewheel.evaluation.candidate import NIGHTS, planned_looks
from tracewheel.evaluation.winners import expected_gain

PAGE = Path("benchmarks/results/gate.md")
SEED, DRAWS = 11, 1500
TASKS, SPREAD = 200, 0.31
GAINS = (0.02, 0.05, 0.08, 0.12, 0.2)
LEVELS = {"first gate of a year": 0.0032, "hundredth gate": 5.1e-5}
CONFIRMATION = 0.0006  # the level of a candidate's confirmation
NORMAL = NormalDist()


def main() -> None:
    rows = [row for name, level in LEVELS.items() for row in one_look(name, level)] + confirmations()
    head = [
        "promoted by",
        "true gain",
        "power",
        "measured",
        "expected",
        "root mean square error",
        "median-unbiased",
        "its error",
    ]
    text = table(head, rows) + "\n"
    between_marks(PAGE, "winners", text)
    print(text)


def one_look(name: str, level: float) -> list[list[str]]:
    """Promotions at one look: draws of a truncated normal, by quantiles."""
    error, rows = SPREAD / math.sqrt(TASKS), []
    cut = -NORMAL.inv_cdf(level) * error
    for gain in GAINS:
        power = NORMAL.cdf((gain - cut) / error)
        at = (np.arange(DRAWS) + 0.5) / DRAWS
        measured = np.array([gain - error * NORMAL.inv_cdf(share * power) for share in at])
        expected = np.array([expected_gain(one, [(error, level)]) for one in measured])
        rows.append(
            _row(name, gain, power, measured, expected, np.array([_median_unbiased(one, cut, error) for one in measured]))
        )
    return rows


def confirmations() -> list[list[str]]:
    """Promotions of candidates: five nights of 200 fresh tasks, dropped where the difference is not above 0."""
    counts = [TASKS * number for number in range(1, NIGHTS + 1)]
    looks = planned_looks(CONFIRMATION, counts[-1], SPREAD, counts)
    errors, levels = (np.array(column) for column in zip(*looks, strict=True))
    bounds = np.array([-NORMAL.inv_cdf(level) for level in levels]) * errors
    stream, rows = np.random.default_rng(SEED), []
    for gain in GAINS:
        steps = stream.normal(gain, errors[0], (40 * DRAWS, NIGHTS))
        means = steps.cumsum(axis=1) / np.arange(1, NIGHTS + 1)
        found = [promotion for path in means if (promotion := _promotion(path, bounds))]
        chosen = [found[place] for place in stream.choice(len(found), DRAWS)]
        measured = np.array([difference for difference, _ in chosen])
        expected = np.array([expected_gain(difference, looks, at) for difference, at in chosen])
        rows.append(_row("candidate, five nights", gain, len(found) / len(means), measured, expected, None))
    return rows


def _promotion(path: np.ndarray, bounds: np.ndarray) -> tuple[float, int] | None:
    for at, (difference, bound) in enumerate(zip(path, bounds, strict=True)):
        if difference > bound:
            return float(difference), at
        if difference <= 0.0:
            return None
    return None


def _median_unbiased(measured: float, cut: float, error: float) -> float:
    """The d of Andrews, Kitagawa and McCloskey (2024) with P(X > x | X > c; d) = 1/2, held at 0."""
    low, high = 0.0, measured
    for _ in range(40):
        middle = (low + high) / 2
        above = NORMAL.cdf((middle - measured) / error) / NORMAL.cdf((middle - cut) / error)
        low, high = (low, middle) if above >= 0.5 else (middle, high)
    return low


def _row(
    name: str, gain: float, power: float, measured: np.ndarray, expected: np.ndarray, other: np.ndarray | None
) -> list[str]:
    figures = [f"{100 * values.mean():+.1f}" for values in (measured, expected)]
    beside = ["–", "–"] if other is None else [f"{100 * other.mean():+.1f}", _error(other, gain)]
    return [name, f"{100 * gain:+.0f}", f"{power:.1%}", *figures, _error(expected, gain), *beside]


def _error(values: np.ndarray, gain: float) -> str:
    return f"{100 * math.sqrt(((values - gain) ** 2).mean()):.1f}"


if __name__ == "__main__":
    main()
