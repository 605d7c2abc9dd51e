"""Paired differences of two evaluations, over all tasks and family by family."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tracewheel.core.inference import holm, mean_interval, sign_flip_p
from tracewheel.evaluation.paired_outcomes import Paired, check_results, common_components, pair, read_outcomes

if TYPE_CHECKING:
    import pandas as pd

CONFIDENCE = 0.95
ALL = "all families"


def paired_differences(
    run: pd.DataFrame, base: pd.DataFrame, *, greedy_weight: float, confidence: float = CONFIDENCE
) -> dict[str, Any]:
    """Differences on the tasks that are in both tables, run minus base.

    The figure of a task is the gate's: `greedy_weight` times greedy success plus the rest times the sampled rate, or greedy
    success alone where one of the two has no sampled episodes. An episode that is missing widens the interval by its worst
    case. Intervals are each at `confidence`; `stands_out` is by Holm's test over all families together.

    Args:
        run: `results.parquet` of an evaluation.
        base: The same of another one.
        greedy_weight: 1 for greedy success alone.

    Returns:
        `tasks` (in both), `sampled` (whether sampled episodes count), `confidence`, and `rows`: for all families and for each,
        `family`, `tasks`, `pairs` (scored for both), `difference`, `interval`, `p` (two-sided, randomisation test) and
        `stands_out`; None where nothing is scored.

    Raises:
        DataError: a table lacks a column or holds a task twice.
    """
    check_results(run, "the run")
    check_results(base, "the base")
    common = sorted(set(run["task_id"]) & set(base["task_id"]))
    new, old = (table.set_index("task_id").loc[common] for table in (run, base))
    families = new["family"].to_numpy(dtype=object)
    paired = pair(read_outcomes(new), read_outcomes(old), families, greedy_weight, common_components(new, old))
    rows = [_row(ALL, paired, np.ones(len(paired.lowest), dtype=bool), np.ones(len(paired.seen), dtype=bool), confidence)]
    for family in sorted(set(families.tolist())):
        rows.append(_row(str(family), paired, paired.families == family, paired.seen_families == family, confidence))
        rows[-1]["tasks"] = int((families == family).sum())
    rows[0]["tasks"] = len(common)
    tested = [row for row in rows[1:] if row["p"] is not None]
    for row, stands_out in zip(tested, holm([row["p"] for row in tested], 1.0 - confidence), strict=True):
        row["stands_out"] = stands_out
    return {"tasks": len(common), "sampled": paired.compares_sampled, "confidence": confidence, "rows": rows}


def _row(
    family: str, paired: Paired, counted: npt.NDArray[np.bool_], seen: npt.NDArray[np.bool_], confidence: float
) -> dict[str, Any]:
    lowest, highest, values = paired.lowest[counted], paired.highest[counted], paired.seen[seen]
    row: dict[str, Any] = {"family": family, "tasks": 0, "pairs": len(values), "difference": None, "interval": None, "p": None}
    row["stands_out"] = False
    if len(values):
        row["difference"] = float(values.mean())
    if len(lowest):
        parts = paired.components[counted]
        row["interval"] = list(mean_interval(lowest, highest, (1.0 - confidence) / 2, parts))
        row["p"] = min(1.0, 2.0 * min(sign_flip_p(lowest, parts), sign_flip_p(-highest, parts)))
    return row
