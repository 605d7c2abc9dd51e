"""Ranking evaluations of the same tasks where some episodes could not be scored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tracewheel.core.files import read_json, read_table
from tracewheel.evaluation.evaluate import EVALUATION_FILE, RESULTS_FILE
from tracewheel.evaluation.paired_outcomes import task_rates
from tracewheel.sampling.validation import MODES, Key, validation_rate

if TYPE_CHECKING:
    import pandas as pd

LEAST_SCORED_SHARE = 0.5


class Evaluation(NamedTuple):
    """An evaluation: its summary and its folder."""

    summary: Mapping[str, Any]
    folder: Path

    @classmethod
    def read(cls, folder: Path) -> Evaluation:
        """The evaluation in a folder.

        Raises:
            DataError: its summary cannot be read.
        """
        return cls(read_json(folder / EVALUATION_FILE), folder)


def comparable_rates(evaluations: Mapping[Key, Evaluation]) -> dict[Key, float | None]:
    """The mean of greedy and sampled success of each evaluation, on tasks that are scored in all of them.

    Where an evaluation lost its hard episodes, its own rate is of easier tasks than the others'. So all are compared
    on the tasks, mode by mode, that every ranked one has a score of. Where nothing is missing these are the rates of
    the summaries.

    Args:
        evaluations: Evaluations of the same tasks.

    Returns:
        The rates; None for an evaluation that is not ranked: fewer than half of its tasks have a score in a mode.
    """
    if all(_is_complete(evaluation) for evaluation in evaluations.values()):
        return {key: validation_rate(evaluation.summary) for key, evaluation in evaluations.items()}
    tables = {key: task_rates(read_table(item.folder / RESULTS_FILE)) for key, item in evaluations.items()}
    ranked = {key: table for key, table in tables.items() if len(table) and (table.notna().mean() >= LEAST_SCORED_SHARE).all()}
    rates: dict[Key, float | None] = dict.fromkeys(evaluations)
    for key, table in ranked.items():
        shared = [_mean_on(table[mode], [other[mode] for other in ranked.values()]) for mode in MODES]
        known = [rate for rate in shared if rate is not None]
        rates[key] = sum(known) / len(known) if len(known) == len(MODES) else None
    return rates


def _is_complete(evaluation: Evaluation) -> bool:
    """Whether every task is scored in both modes, or there is only a summary (that of a planned evaluation)."""
    if not (evaluation.folder / RESULTS_FILE).is_file():
        return True
    return all(evaluation.summary[mode]["n"] == evaluation.summary["tasks"] for mode in MODES)


def _mean_on(success: pd.Series, all_of_them: list[pd.Series]) -> float | None:
    """The mean over the tasks that all have a score of; None without such a task."""
    shared = success.index
    for other in all_of_them:
        shared = shared.intersection(other.dropna().index)
    return float(success.loc[shared].mean()) if len(shared) else None
