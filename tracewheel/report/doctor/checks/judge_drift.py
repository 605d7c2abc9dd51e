"""Judge drift: the training rubric's marks rise on validation while those of the rubric that is held back fall."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracewheel.evaluation.evaluate import HELD_BACK, TRAINING
from tracewheel.report.doctor.finding import Finding, Severity, not_checked, worst
from tracewheel.report.doctor.limits import severity_above
from tracewheel.report.doctor.run_records import RunRecords
from tracewheel.report.doctor.windows import mean_and_error

if TYPE_CHECKING:
    import pandas as pd

NAME = "judge_drift"
ADVICE = (
    "The policy learns what its judge likes and not what the held-back judge sees. Read episodes on which the two disagree, "
    "give the training rubric an outcome that is checked, sharpen the judge's criteria, and continue from the validation with "
    "the best held-back mark."
)
ERRORS = 2.0  # standard errors of a rise and of a fall


def judge_drift(records: RunRecords) -> Finding:
    """Compare both rubrics' mean reward by task, of the first validation and of each later one."""
    marks = dict(sorted(records.judges.items()))
    if len(marks) < 2:
        return not_checked(NAME, "There is no evaluation.rubric, or no second validation.")
    first = next(iter(marks))
    evidence = {rubric: [round(float(table[rubric].mean()), 4) for table in marks.values()] for rubric in (TRAINING, HELD_BACK)}
    found: list[tuple[int, Severity]] = []
    for number, table in list(marks.items())[1:]:
        rise, rise_error = _change(marks[first], table, TRAINING)
        fall, fall_error = _change(table, marks[first], HELD_BACK)
        if rise > ERRORS * rise_error and fall > ERRORS * fall_error:
            severity = severity_above(fall, records.config.doctor.limit("fall"))
            if severity != "healthy":
                found.append((number, severity))
    if not found:
        return Finding(NAME, "healthy", evidence)
    numbers = tuple(number for number, _ in found)
    return Finding(NAME, worst(severity for _, severity in found), evidence, ADVICE, numbers)


def _change(before: pd.DataFrame, after: pd.DataFrame, rubric: str) -> tuple[float, float]:
    """The mean change over tasks, and its standard error."""
    return mean_and_error((after[rubric] - before[rubric]).dropna())
