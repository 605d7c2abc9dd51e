"""The severity of a figure, given its limits."""

from __future__ import annotations

from tracewheel.config import Limits
from tracewheel.report.doctor.finding import Severity


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
