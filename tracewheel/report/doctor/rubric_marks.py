"""Each task's marks by the rubric of training and by the one that is held back, from the scores of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tracewheel.evaluation.evaluate import HELD_BACK, TRAINING
from tracewheel.sampling.validation import MODES
from tracewheel.scoring.rubric import success_of
from tracewheel.scoring.score import SCORES_FILE, read_scores

if TYPE_CHECKING:
    import pandas as pd

RUBRICS = (TRAINING, HELD_BACK)


def marks_of(folder: Path) -> pd.DataFrame | None:
    """Each task's mean over the scored episodes of both modes of an evaluation, NaN without one; None without two rubrics.

    The columns are `training` and `held_back`, the rewards, and `training_success` and `held_back_success`.

    Raises:
        DataError: scores cannot be read.
    """
    import pandas as pd

    beside = next((name for name in RUBRICS if any((folder / mode / name / SCORES_FILE).is_file() for mode in MODES)), None)
    if beside is None:
        return None
    columns: dict[str, pd.Series] = {}
    for rubric in RUBRICS:
        paths = [folder / mode / (rubric if rubric == beside else "") / SCORES_FILE for mode in MODES]
        scores = [score for path in paths if path.is_file() for score in read_scores(path)]
        rows = pd.DataFrame(
            [(one.task_id, one.total, success_of(one) if one.total is not None else None) for one in scores],
            columns=["task_id", "total", "success"],
        ).astype({"total": float, "success": float})
        means = rows.groupby("task_id")[["total", "success"]].mean()
        columns |= {rubric: means["total"], f"{rubric}_success": means["success"]}
    return pd.DataFrame(columns)


def read_judges(validations: Mapping[int, Path]) -> dict[int, pd.DataFrame]:
    """`marks_of` each validation that has both rubrics.

    Raises:
        DataError: scores cannot be read.
    """
    return {number: marks for number, folder in validations.items() if (marks := marks_of(folder)) is not None}
