"""Checks of one shape: a share of episodes or of calls that is to stay low over the last iterations."""

from __future__ import annotations

from typing import Any

import pandas as pd

from tracewheel.config import Ceiling
from tracewheel.report.doctor.figures import Rate, rates, too_high
from tracewheel.report.doctor.finding import Finding, not_checked, worst
from tracewheel.report.doctor.records import RunRecords


def share_finding(
    name: str,
    records: RunRecords,
    hits: pd.Series,
    of: pd.Series,
    limits: Ceiling,
    advice: str,
    more: dict[str, Any] | None = None,
) -> Finding:
    """A finding on `hits` out of `of`, both along the rows of the episodes.

    A share counts from where the lower end of its 95% interval reaches the warning: a few odd episodes
    among few are no finding. `more` are counts over the whole run.
    """
    figures = rates(records.count(hits), records.count(of), records.config.doctor.window)
    if not figures:
        return not_checked(name, "There is nothing to count.")
    severities = {number: too_high(rate.value, limits, surely=rate.low) for number, rate in figures.items()}
    sick = tuple(number for number, found in severities.items() if found != "healthy")
    top = max((figures[number] for number in sick or figures), key=lambda rate: rate.value)
    evidence: dict[str, Any] = {"share": top.value, "at least": top.low, "of": top.n}
    evidence |= {f"in all, {key}": value for key, value in (more or {}).items()} | {"by_iteration": _values(figures)}
    return Finding(name, worst(severities.values()), evidence, advice if sick else "", sick)


def _values(figures: dict[int, Rate]) -> dict[int, float]:
    return {number: rate.value for number, rate in figures.items()}
