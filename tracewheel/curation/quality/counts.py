"""Counts for the quality report: rates with intervals, families, steps of divergence."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tracewheel.core.statistics import Interval, rate_interval, wilson_interval
from tracewheel.curation.curated_folder import SPLITS

if TYPE_CHECKING:
    import pandas

BINS = 12
# With fewer tasks a bootstrap interval is far too narrow: for one task it has width 0.
FEWEST_FOR_BOOTSTRAP = 10


def rates(labelled: pandas.DataFrame, by: str) -> list[dict[str, Any]]:
    """Success of the logged agent in each group: `name`, `episodes`, `unknown`, `tasks`, `rate`, `low`, `high`.

    A rate is the mean over tasks of each task's mean label, with a 95% interval over tasks, because the attempts
    at one task are not independent. It is None where no label is known.
    """
    rows = []
    order = {name: index for index, name in enumerate(SPLITS)}
    groups = [(name, group) for name, group in labelled.groupby(by)]
    for name, group in sorted(groups, key=lambda pair: (order.get(str(pair[0]), len(order)), pair[0])):
        known = group[group["label"].notna()]
        means = (known["label"] >= 1.0).groupby(known["task_id"]).mean()
        interval = _interval(means) if len(means) else None
        rows.append(
            {
                "name": str(name),
                "episodes": len(group),
                "unknown": len(group) - len(known),
                "tasks": int(group["task_id"].nunique()),
                "rate": float(means.mean()) if len(means) else None,
                "low": interval.low if interval else None,
                "high": interval.high if interval else None,
            }
        )
    return rows


def _interval(means: pandas.Series) -> Interval:
    if len(means) < FEWEST_FOR_BOOTSTRAP:
        return wilson_interval(float(means.sum()), len(means))
    return rate_interval(means.to_numpy())


def families(tasks: pandas.DataFrame) -> list[dict[str, Any]]:
    """Tasks of each family: in all, by split, by tier, and how many no logged attempt solved."""
    rows = []
    for name, group in tasks.groupby("family"):
        rows.append(
            {
                "name": str(name),
                "tasks": len(group),
                "splits": {split: int((group["split"] == split).sum()) for split in SPLITS},
                "tiers": {str(tier): int(count) for tier, count in sorted(Counter(group["tier"]).items())},
                "never_solved": int((group["successes"] == 0).sum()) if "successes" in group else None,
            }
        )
    return rows


def divergence_steps(labelled: pandas.DataFrame) -> dict[str, Any] | None:
    """Numbers of calls before failures diverge from a success; None where no failure was compared."""
    steps = [int(step) for step in labelled["diverges_at"].dropna()]
    return histogram(steps) if steps else None


def histogram(values: Sequence[int]) -> dict[str, Any]:
    """Counts in at most `BINS` bins of equal whole width: `start`, `width`, `counts`, and four figures.

    Bin i holds values in [start + i * width, start + (i + 1) * width).
    """
    ordered = sorted(values)
    start, end = ordered[0], ordered[-1]
    width = max(1, math.ceil((end - start + 1) / BINS))
    counts = [0] * ((end - start) // width + 1)
    for value in ordered:
        counts[(value - start) // width] += 1
    return {
        "start": start,
        "width": width,
        "counts": counts,
        "least": start,
        "median": ordered[len(ordered) // 2],
        "ninth_decile": ordered[min(len(ordered) - 1, len(ordered) * 9 // 10)],
        "most": end,
    }
