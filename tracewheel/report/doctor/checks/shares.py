"""The check that several share: a share of episodes or calls that should stay low."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from tracewheel.config import Limits
from tracewheel.report.doctor.finding import Finding, not_checked, worst
from tracewheel.report.doctor.limits import severity_above
from tracewheel.report.doctor.run_records import RunRecords
from tracewheel.report.doctor.windows import rates


@dataclass(frozen=True)
class Share:
    """Hits out of totals, both series along the rows of the episodes.

    Attributes:
        hits: What is counted.
        totals: What it is a share of.
        counts: More evidence over the whole run, by name.
    """

    hits: pd.Series
    totals: pd.Series
    counts: Mapping[str, Any] = field(default_factory=dict)


def share_finding(name: str, records: RunRecords, share: Share, limits: Limits, advice: str) -> Finding:
    """Compare a share over the last iterations with its limits.

    It is unhealthy where the lower end of its 95% interval reaches the warning, so a few bad episodes among few are not
    a finding.
    """
    figures = rates(records.count(share.hits), records.count(share.totals), records.config.doctor.window)
    if not figures:
        return not_checked(name, "There is nothing to count.")
    severities = {number: severity_above(rate.value, limits, lower_bound=rate.low) for number, rate in figures.items()}
    sick = tuple(number for number, found in severities.items() if found != "healthy")
    top = max((figures[number] for number in sick or figures), key=lambda rate: rate.value)
    evidence: dict[str, Any] = {"share": top.value, "at least": top.low, "of": top.n}
    evidence |= {f"in all, {key}": value for key, value in share.counts.items()}
    evidence["by_iteration"] = {number: rate.value for number, rate in figures.items()}
    return Finding(name, worst(severities.values()), evidence, advice if sick else "", sick)
