"""What the checks measure with: rates and medians over windows of iterations, and the severity of a figure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tracewheel.config import Limits
from tracewheel.core.inference import wilson_interval
from tracewheel.report.doctor.finding import Severity

if TYPE_CHECKING:
    import pandas as pd

WINDOW = 3  # iterations that a figure covers, the last ones


def severity_above(value: float, limits: Limits, *, lower_bound: float | None = None) -> Severity:
    """The severity of a figure that should stay low.

    Args:
        lower_bound: Of an estimate, the lower end of its interval; below the warning the figure is healthy.
    """
    if (value if lower_bound is None else lower_bound) < limits.warn:
        return "healthy"
    return "severe" if value >= limits.severe else "warning"


def severity_below(value: float, limits: Limits, *, upper_bound: float | None = None) -> Severity:
    """The severity of a figure that should stay high.

    Args:
        upper_bound: Of an estimate, the upper end of its interval; above the warning the figure is healthy.
    """
    if (value if upper_bound is None else upper_bound) > limits.warn:
        return "healthy"
    return "severe" if value <= limits.severe else "warning"


class Rate(NamedTuple):
    """A share over a window, with its 95% interval."""

    value: float
    low: float
    high: float
    n: int


def rates(hits: Mapping[int, int], totals: Mapping[int, int], window: int) -> dict[int, Rate]:
    """The rate of hits over the last `window` iterations, for each iteration whose window is not empty."""
    found = {}
    for iteration, numbers in windows(sorted(totals), window).items():
        n, successes = sum(totals[number] for number in numbers), sum(hits.get(number, 0) for number in numbers)
        if n:
            found[iteration] = Rate(successes / n, *wilson_interval(successes, n), n=n)
    return found


def medians(values: Mapping[int, float], window: int) -> dict[int, float]:
    """The median over the last `window` iterations, so that one outlier is not a trend."""
    return {
        iteration: statistics.median(values[number] for number in numbers)
        for iteration, numbers in windows(sorted(values), window).items()
    }


def windows(iterations: Sequence[int], window: int) -> dict[int, list[int]]:
    """For each iteration, up to `window` iterations that end with it."""
    return {iteration: list(iterations[max(0, index + 1 - window) : index + 1]) for index, iteration in enumerate(iterations)}


def by_iteration(series: pd.Series) -> dict[int, float]:
    """A series with iterations as its index, as a dictionary."""
    return {int(number): float(value) for number, value in zip(series.index, series, strict=True)}


def mean_and_error(values: pd.Series) -> tuple[float, float]:
    """The mean and its standard error; infinite for a single value."""
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("inf")
