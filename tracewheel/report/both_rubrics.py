"""The rubric of training and the one that is held back side by side, by policy and by validation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from tracewheel.core.statistics import rate_interval
from tracewheel.evaluation.evaluate import HELD_BACK, TRAINING
from tracewheel.report.doctor.rubric_marks import RUBRICS, marks_of
from tracewheel.report.report_data import BothRubrics, Curve, Estimate

SERIES = {TRAINING: "training", HELD_BACK: "held back"}


def rubrics_of(key: str, folders: Sequence[Path], tasks: Collection[str] | None = None, seed: int = 0) -> BothRubrics | None:
    """A policy's means by both rubrics over the tasks that both scored; None where no evaluation has both.

    Args:
        key: The policy.
        folders: Its evaluations.
        tasks: The tasks that count; all without it.
        seed: Of the intervals.

    Raises:
        DataError: scores cannot be read.
    """
    import pandas as pd

    found = [marks for folder in folders if (marks := marks_of(folder)) is not None]
    if not found:
        return None
    table = pd.concat(found).dropna()
    table = table if tasks is None else table[table.index.isin(tasks)]
    if table.empty:
        return None
    means = {name: Estimate(float(table[name].mean()), *rate_interval(table[name], seed=seed), n=len(table)) for name in table}
    rewards = {rubric: means[rubric] for rubric in RUBRICS}
    return BothRubrics(key, rewards, {rubric: means[f"{rubric}_success"] for rubric in RUBRICS})


def rubric_curves(validations: Mapping[int, Path]) -> list[Curve]:
    """The mean reward of both rubrics by validation, with their intervals; none without a rubric that is held back.

    Args:
        validations: Iteration to the folder of its evaluation.

    Raises:
        DataError: scores cannot be read.
    """
    found = {number: both for number, folder in sorted(validations.items()) if (both := rubrics_of("", [folder]))}
    if not found:
        return []
    rewards = {words: {number: both.reward[name] for number, both in found.items()} for name, words in SERIES.items()}
    series = {words: [(number, one.value) for number, one in own.items()] for words, own in rewards.items()}
    bands = {words: [(number, one.low, one.high) for number, one in own.items()] for words, own in rewards.items()}
    return [Curve("Both rubrics", series, "mean reward on validation tasks, with 95% intervals", bands=bands)]
