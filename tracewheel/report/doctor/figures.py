"""Figures over the last iterations, and what they come to when held against limits."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tracewheel.config import Ceiling, Floor
from tracewheel.core.statistics import wilson_interval
from tracewheel.report.doctor.finding import Severity

if TYPE_CHECKING:
    import pandas as pd


class Rate(NamedTuple):
    """A share over a window, with the ends of its 95% interval."""

    value: float
    low: float
    high: float
    n: int


def rates(hits: Mapping[int, int], of: Mapping[int, int], window: int) -> dict[int, Rate]:
    """The share of hits over the last `window` iterations, for each iteration that has something to count."""
    found = {}
    for iteration, numbers in windows(sorted(of), window).items():
        n, successes = sum(of[number] for number in numbers), sum(hits.get(number, 0) for number in numbers)
        if n:
            found[iteration] = Rate(successes / n, *wilson_interval(successes, n), n=n)
    return found


def medians(values: Mapping[int, float], window: int) -> dict[int, float]:
    """The median over the last `window` iterations: one wild batch is no trend."""
    return {
        iteration: statistics.median(values[number] for number in numbers)
        for iteration, numbers in windows(sorted(values), window).items()
    }


def windows(iterations: Sequence[int], window: int) -> dict[int, list[int]]:
    """For each iteration, itself and those before it, `window` in all where there are as many."""
    return {iteration: list(iterations[max(0, index + 1 - window) : index + 1]) for index, iteration in enumerate(iterations)}


def too_high(value: float, limits: Ceiling, *, surely: float | None = None) -> Severity:
    """What a figure comes to that is to stay low. `surely` is what it is at least, when it is an estimate."""
    if (value if surely is None else surely) < limits.warn:
        return "healthy"
    return "severe" if value >= limits.severe else "warning"


def too_low(value: float, limits: Floor, *, surely: float | None = None) -> Severity:
    """What a figure comes to that is to stay high. `surely` is what it is at most, when it is an estimate."""
    if (value if surely is None else surely) > limits.warn:
        return "healthy"
    return "severe" if value <= limits.severe else "warning"


def by_iteration(series: pd.Series) -> dict[int, float]:
    """A series that is indexed by iterations."""
    return {int(number): float(value) for number, value in zip(series.index, series, strict=True)}


def mean_and_error(values: pd.Series) -> tuple[float, float]:
    """Mean and standard error of the mean of some groups' figures."""
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("inf")
