"""Length explosion: episodes of the same tasks keep growing."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tracewheel.report.doctor.finding import Finding, Severity, not_checked, worst
from tracewheel.report.doctor.limits import severity_above
from tracewheel.report.doctor.run_records import RunRecords
from tracewheel.report.doctor.windows import windows

NAME = "length_explosion"
ADVICE = (
    "Episodes grow longer without more success. A mean over sequences favours long failures: set learner.aggregation to "
    "token or constant (or kind: dr_grpo), penalise length in the rubric, or lower rollout.max_turn_tokens."
)
LEAST_TASKS = 5
GAIN = 0.05


def length_explosion(records: RunRecords) -> Finding:
    """The factor by which episodes have grown, in sampled tokens, since the first iterations.

    Compared on the tasks that both windows hold, or on all tasks where these are too few. Growth that comes with more
    success is a warning at most.
    """
    numbers = [item.number for item in records.iterations]
    if records.episodes.empty or len(numbers) < 2:
        return not_checked(NAME, "A trend needs at least two iterations.")
    settings = records.config.doctor
    size = min(records.config.doctor.window, len(numbers) // 2)
    early = records.span(numbers[:size])
    before = _tokens_by_task(early)
    factors: dict[int, float] = {}
    severities: dict[int, Severity] = {}
    for number, span in windows(numbers, size).items():
        if number <= numbers[size - 1] or span[0] in numbers[:size]:
            continue
        late = records.span(span)
        if early.empty or late.empty:
            continue
        factors[number] = growth(early, late, before)
        severity = severity_above(factors[number], settings.limit("length"))
        gained = late["success"].mean() - early["success"].mean() > GAIN
        severities[number] = "warning" if severity == "severe" and gained else severity
    sick = tuple(number for number, severity in severities.items() if severity != "healthy")
    evidence = {
        "factor": max(factors.values(), default=1.0),
        "tokens at first": float(early["action_tokens"].mean()),
        "tokens at last": float(records.span(numbers[-size:])["action_tokens"].mean()),
        "turns at first": float(early["turns"].mean()),
        "turns at last": float(records.span(numbers[-size:])["turns"].mean()),
        "by_iteration": factors,
    }
    return Finding(NAME, worst(severities.values()), evidence, ADVICE if sick else "", sick)


def _tokens_by_task(part: pd.DataFrame) -> pd.Series:
    return part.groupby("task_id")["action_tokens"].mean().clip(lower=1.0)


def growth(early: pd.DataFrame, late: pd.DataFrame, before: pd.Series) -> float:
    """The geometric mean over tasks of the growth in tokens; over all episodes where few tasks are shared.

    Args:
        early: The first episodes.
        late: The later ones.
        before: The mean tokens of each task in `early`.
    """
    after = _tokens_by_task(late)
    both = before.index.intersection(after.index)
    if len(both) < LEAST_TASKS:
        return float(late["action_tokens"].mean() / max(early["action_tokens"].mean(), 1.0))
    return float(np.exp(np.log(after[both] / before[both]).mean()))
