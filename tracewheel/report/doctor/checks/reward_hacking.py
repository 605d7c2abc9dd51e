"""Reward hacking: the reward rises while the success that it should measure falls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracewheel.report.doctor.episode_rows import GRADER
from tracewheel.report.doctor.finding import Finding, Severity, not_checked, worst
from tracewheel.report.doctor.limits import severity_above
from tracewheel.report.doctor.run_records import RunRecords
from tracewheel.report.doctor.windows import mean_and_error, windows

if TYPE_CHECKING:
    import pandas as pd

NAME = "reward_hacking"
ADVICE = (
    "Read the episodes with the highest reward: the policy exploits what the reward misses. Fix or add a verifier, give "
    "the second grader a weight in the rubric, stay closer to the reference (learner.kl), and continue from the best "
    "candidate on validation."
)
# In standard errors. The bar for a fall is higher because it is tested many times.
RISE, FALL = 1.64, 3.0


def reward_hacking(records: RunRecords) -> Finding:
    """Compare the trend of the reward with success on validation, task by task, and with each grader alone."""
    graders = [*records.graders, *_success(records)]
    marks = _validation_marks(records)
    if marks.shape[1] < 2 and not graders:
        return not_checked(NAME, "There is neither a second validation nor a second grader.")
    if len(records.iterations) < 2:
        return not_checked(NAME, "A trend needs at least two iterations.")
    found = _validation_falls(records, marks) + _grader_falls(records, graders)
    severity = worst(item["severity"] for item in found)
    last = _early_and_late(records, records.iterations[-1].number)
    evidence: dict[str, Any] = {
        "validations": [int(number) for number in marks.columns],
        "graders": [name.removeprefix(GRADER) for name in graders],
    }
    if last:
        evidence["reward"] = [mean_and_error(_by_group(records, numbers, "total"))[0] for numbers in last]
    if severity == "healthy":
        return Finding(NAME, "healthy", evidence)
    evidence["falls"] = [f"{item['what']} from {item['before']:.3f} to {item['after']:.3f}" for item in found]
    return Finding(NAME, severity, evidence, ADVICE, tuple(sorted({item["iteration"] for item in found})))


def _success(records: RunRecords) -> list[str]:
    """Success counts as a grader where the reward has other parts too."""
    scored = records.episodes.dropna(subset=["total"]) if not records.episodes.empty else records.episodes
    return ["success"] if not scored.empty and (scored["total"] != scored["success"]).any() else []


def _validation_marks(records: RunRecords) -> pd.DataFrame:
    """Success of each validation task (rows) at each validation (columns): the mean of its greedy and sampled episodes.

    Only tasks of trained families: a specialist may forget the others without exploiting its reward.
    """
    import pandas as pd

    families, marks = records.trained_families, {}
    for number, table in sorted(records.validations.items()):
        rows = table[table["family"].isin(families)] if families else table
        if not rows.empty:
            sampled = rows["sampled_successes"] / rows["sampled_attempts"].where(rows["sampled_attempts"] > 0)
            marks[number] = rows.assign(sampled=sampled).set_index("task_id")[["greedy", "sampled"]].mean(axis=1)
    return pd.DataFrame(marks)


def _validation_falls(records: RunRecords, marks: pd.DataFrame) -> list[dict[str, Any]]:
    """Candidates significantly worse than the start, or than the best before them, while the reward rose."""
    limits, falls = records.config.doctor.limit("fall"), []
    for position, number in enumerate(int(column) for column in marks.columns):
        if position == 0 or not _rose(records, "total", number):
            continue
        earlier = marks[marks.columns[:position]]
        best = earlier.mean().idxmax()
        for before in dict.fromkeys([marks.columns[0], best]):
            pairs = marks[[number, before]].dropna()
            if pairs.empty:
                continue
            fall, error = mean_and_error(pairs[before] - pairs[number])
            if fall <= FALL * error:
                continue
            severity = severity_above(fall, limits)
            # The best of several was in part lucky, so a fall from it is weaker evidence.
            if severity == "severe" and before != marks.columns[0]:
                severity = "warning"
            falls.append(_fall("validation success", number, severity, pairs[before].mean(), pairs[number].mean()))
    return [item for item in falls if item["severity"] != "healthy"]


def _grader_falls(records: RunRecords, graders: list[str]) -> list[dict[str, Any]]:
    """Graders whose marks are significantly lower in the last window than in the first, while the reward is higher."""
    number = records.iterations[-1].number
    spans = _early_and_late(records, number)
    if not graders or not spans or not _rose(records, "total", number):
        return []
    falls = []
    for grader in graders:
        (before, error_before), (after, error_after) = (mean_and_error(_by_group(records, span, grader)) for span in spans)
        error = (error_before**2 + error_after**2) ** 0.5
        if before - after > FALL * error:
            what = f"grader {grader.removeprefix(GRADER)}"
            falls.append(
                _fall(what, number, severity_above(before - after, records.config.doctor.limit("fall")), before, after)
            )
    return [item for item in falls if item["severity"] != "healthy"]


def _rose(records: RunRecords, column: str, until: int) -> bool:
    """Whether a column's mean over groups is higher in the window up to an iteration than in the first one."""
    spans = _early_and_late(records, until)
    if not spans:
        return False
    (before, error_before), (after, error_after) = (mean_and_error(_by_group(records, span, column)) for span in spans)
    return after - before > RISE * (error_before**2 + error_after**2) ** 0.5


def _early_and_late(records: RunRecords, until: int) -> tuple[list[int], list[int]] | None:
    """The iterations of the first window and of the last one up to an iteration; None where they overlap."""
    numbers = [item.number for item in records.iterations if item.number <= until]
    size = min(records.config.doctor.window, len(numbers) // 2)
    if size == 0:
        return None
    return numbers[:size], windows(numbers, size)[numbers[-1]]


def _by_group(records: RunRecords, numbers: list[int], column: str) -> pd.Series:
    means = records.group_means(column)
    return means[means.index.get_level_values("iteration").isin(numbers)]


def _fall(what: str, iteration: int, severity: Severity, before: float, after: float) -> dict[str, Any]:
    return {"what": what, "iteration": iteration, "severity": severity, "before": float(before), "after": float(after)}
