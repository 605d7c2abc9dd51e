"""Weak start: the first policy almost never succeeds, so there is nothing to reinforce."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracewheel.core.statistics import wilson_interval
from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.limits import severity_below
from tracewheel.report.doctor.run_records import RunRecords

if TYPE_CHECKING:
    import pandas as pd

NAME = "weak_start"
ADVICE = (
    "The policy that training starts from almost never succeeds, so few groups have a success to learn from. Warm start "
    "it on verified logs, distil from a stronger teacher (`tracewheel teach`), or begin with easier tasks."
)


def weak_start(records: RunRecords) -> Finding:
    """pass@k of the groups of the first iterations, or before the first iteration of the validation at the start."""
    limits = records.config.doctor.limit("pass_at_k")
    groups = _first_groups(records)
    if groups is None:
        return not_checked(NAME, "Neither a validation at the start nor a scored group is stored.")
    solved, k, where, varied = groups
    rate, high = float(solved.mean()), wilson_interval(float(solved.sum()), len(solved)).high
    severity = severity_below(rate, limits, upper_bound=high)
    if severity == "severe" and varied is not None and varied > limits.warn:
        severity = "warning"  # partial rewards still give a gradient
    evidence = {"pass@k": rate, "k": k, "at most": high, "tasks": len(solved), "measured on": where}
    if varied is not None:
        evidence["groups whose rewards differ"] = varied
    return Finding(NAME, severity, evidence, "" if severity == "healthy" else ADVICE, () if severity == "healthy" else (0,))


def _first_groups(records: RunRecords) -> tuple[pd.Series, int, str, float | None] | None:
    """Whether each task was solved, the attempts k, the source, and the share of groups whose rewards differ."""
    first = [item.number for item in records.iterations[: records.config.doctor.window]]
    scored = records.span(first).dropna(subset=["success"]) if first else None
    if scored is not None and not scored.empty:
        groups = scored.groupby(["iteration", "group"])
        varied = float((groups["total"].nunique() > 1).mean())
        return (groups["success"].max() > 0).astype(float), int(groups.size().max()), "the first training groups", varied
    start = records.validations.get(0)
    if start is None:
        return None
    tried = start[start["greedy"].notna() | (start["sampled_attempts"] > 0)]
    if tried.empty:
        return None
    solved = ((tried["greedy"].fillna(0.0) > 0) | (tried["sampled_successes"] > 0)).astype(float)
    return solved, 1 + int(tried["sampled_attempts"].max()), "the validation split", None
