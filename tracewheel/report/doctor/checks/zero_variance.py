"""Zero variance: all samples of a group get the same reward, so the group has no advantage."""

from __future__ import annotations

import pandas as pd

from tracewheel.report.doctor.finding import Finding, Severity, not_checked, worst
from tracewheel.report.doctor.limits import severity_above
from tracewheel.report.doctor.run_records import RunRecords
from tracewheel.report.doctor.windows import by_iteration, rates

SOLVED = 0.9  # the share of solved groups from which the tasks are too easy
NAME = "zero_variance"
TOO_HARD = (
    "All samples of most groups fail alike, so most episodes give no gradient. Take easier tasks or warm start first, "
    "sample more (rollout.group_size, rollout.temperature), let the reward distinguish failures, or refill the batch with "
    "learner.zero_variance: dynamic."
)
TOO_EASY = (
    "Every sample of nearly all groups succeeds: the tasks are mastered, and further iterations cost time without a "
    "gradient. Stop here, or take harder tasks."
)


def zero_variance(records: RunRecords) -> Finding:
    """The share of groups without a gradient; those that fail are counted apart from those that are solved."""
    scored = records.episodes.dropna(subset=["total"]) if not records.episodes.empty else records.episodes
    if scored.empty:
        return not_checked(NAME, "No scored group is stored.")
    groups = scored.groupby(["iteration", "group"]).agg(
        values=("total", "nunique"), success=("success", "min"), size=("total", "size")
    )
    groups = groups[groups["size"] > 1]
    if groups.empty:
        return not_checked(NAME, "No group has two scored samples.")
    solved = (groups["values"] == 1) & (groups["success"] > 0)
    alike = (groups["values"] == 1) & ~solved
    limits, window = records.config.doctor.limit("zero_variance"), records.config.doctor.window

    of = _counts(groups["size"] > 0)
    hard, easy = rates(_counts(alike), of, window), rates(_counts(solved), of, window)
    severities: dict[int, Severity] = {
        number: severity_above(rate.value, limits, lower_bound=rate.low) for number, rate in hard.items()
    }
    mastered = [number for number, rate in easy.items() if rate.low >= SOLVED]
    evidence = {
        "share alike and not solved": max(rate.value for rate in hard.values()),
        "share solved by all": max(rate.value for rate in easy.values()),
        "groups": len(groups),
        "by_iteration": {number: rate.value + easy[number].value for number, rate in hard.items()},
    }
    sick = [number for number, severity in severities.items() if severity != "healthy"]
    severity = worst(severities.values())
    if severity == "healthy" and mastered:
        return Finding(NAME, "warning", evidence, TOO_EASY, tuple(mastered))
    return Finding(NAME, severity, evidence, TOO_HARD if sick else "", tuple(sick))


def _counts(flags: pd.Series) -> dict[int, int]:
    """How many groups of each iteration are flagged."""
    return {number: int(count) for number, count in by_iteration(flags.groupby("iteration").sum()).items()}
