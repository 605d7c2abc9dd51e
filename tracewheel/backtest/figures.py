"""Points gained, and how one cadence compares with another.

The success of a day is the mean over the day's tasks, each once. The *area* between two policies is the sum over the days of
their differences in success, in point-days: a policy that is 10 points better for 20 days has gained 200. Its interval is of
the tasks that happened to be asked for (a task asked for on several days is one draw), not of the luck of training: another
seed would train other policies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Area:
    """A sum of daily differences in success.

    Attributes:
        points: In point-days.
        low, high: Its interval.
        days: Days with a task that counts.
        rows: Tasks that count, each day's of its own.
        a_day: Points on an average day, `points` / `days`; None without days.
    """

    points: float
    low: float
    high: float
    days: int
    rows: int

    @property
    def a_day(self) -> float | None:
        return self.points / self.days if self.days else None

    def to_record(self) -> dict[str, Any]:
        return {**asdict(self), "a_day": self.a_day}


def area_of(rows: pandas.DataFrame, confidence: float = CONFIDENCE) -> Area:
    """The area between two scores.

    The variance is that of a sum of daily means, with the residuals of a task added up over its days; a day of n tasks counts
    n / (n - 1) of it, and a day with one task adds none.

    Args:
        rows: `day`, `task_id`, `score` and `first`; rows without both scores do not count.
        confidence: Of the interval.
    """
    known = rows.dropna(subset=["score", "first"])
    if known.empty:
        return Area(0.0, 0.0, 0.0, 0, 0)
    difference = 100.0 * (known["score"] - known["first"])
    of_day = difference.groupby(known["day"])
    count, mean = of_day.transform("size"), of_day.transform("mean")
    few = count > 1
    weight = (count / (count - 1).where(few, 1.0)) ** 0.5 * few
    residual = (difference - mean) / count * weight
    spread = math.sqrt(float((residual.groupby(known["task_id"]).sum() ** 2).sum()))
    points = float(of_day.mean().sum())
    half = NormalDist().inv_cdf(0.5 + confidence / 2) * spread
    return Area(points, points - half, points + half, int(known["day"].nunique()), len(known))


def daily(rows: pandas.DataFrame) -> list[dict[str, Any]]:
    """The `success` of each `day`, of its `tasks` that count: of what served, of the `first` policy, and of the agent that was
    `logged` (on the tasks whose attempt is scored); None without any.
    """
    found = []
    for day, own in rows.groupby("day", sort=True):
        known = own.dropna(subset=["score", "first"])
        logged = own["success"].dropna()
        found.append(
            {
                "day": str(day),
                "tasks": len(known),
                "success": float(known["score"].mean()) if len(known) else None,
                "first": float(known["first"].mean()) if len(known) else None,
                "logged": float((logged >= 1.0).mean()) if len(logged) else None,
            }
        )
    return found


def compare(branches: Mapping[str, pandas.DataFrame]) -> dict[str, Any]:
    """The branch with the most points, and how it differs from each other one on the tasks that count in both.

    Args:
        branches: Name to rows with `day`, `task_id`, `score` and `first`, only those that count.

    Returns:
        `best`; `points` by name; `differences`: other name to the area of the best minus it, with intervals that hold together
        at 95% (Bonferroni); `clear`: whether all of them are above 0.
    """
    points = {name: area_of(rows).points for name, rows in branches.items()}
    best = max(points, key=lambda name: (points[name], -list(points).index(name)))
    others = [name for name in branches if name != best]
    confidence = 1.0 - (1.0 - CONFIDENCE) / max(1, len(others))
    differences = {name: between(branches[best], branches[name], confidence).to_record() for name in others}
    clear = bool(others) and all(item["low"] > 0 for item in differences.values())
    return {"best": best, "points": points, "differences": differences, "clear": clear}


def between(one: pandas.DataFrame, other: pandas.DataFrame, confidence: float = CONFIDENCE) -> Area:
    """The area between two branches, on the tasks of a day that count in both."""
    columns = ["day", "task_id", "score"]
    pairs = one[columns].merge(other[columns].rename(columns={"score": "first"}), on=["day", "task_id"])
    return area_of(pairs, confidence)
