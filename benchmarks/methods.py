"""Two methods compared over seeds: how far another run of each could move their difference, and how many seeds would tell.

Both methods run with the same seeds on the same tasks. With d[s, t] the difference of their figures on seed s and task t,

    d[s, t] = method + seed[s] + task[t] + rest[s, t],

with random effects of the seed, the task, and the seed by the task. The design is balanced, so that the estimates of a mixed
model are those of the two-way analysis of variance (Searle, Casella and McCulloch, Variance Components, 1992, chapter 4). An
interval over the tasks of one run says how far other tasks could move one adapter; this one says how far another run could move
the method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from measuring import table
from scipy import stats

CONFIDENCE, POWER = 0.95, 0.8
GAINS = (2.0, 3.0, 5.0)  # in points
MOST_SEEDS = 1000
ALIKE = 3.0  # points: an interval within them says that two methods are alike


@dataclass(frozen=True)
class MethodDifference:
    """One method minus another, in points.

    Attributes:
        mean: Over seeds and tasks.
        interval: Over seeds, on these tasks: another run of both methods. Student's t on the seeds' means.
        on_new_tasks: Over seeds and tasks, by Satterthwaite's degrees of freedom (1946); None where it is not known that all
            seeds have the same tasks.
        seeds, tasks: How many; `tasks` is 0 where only the seeds' means are known.
        seed_spread: Standard deviation of the seeds' means.
        needed: Points to the seeds with which so large a difference is seen with 80% power; None above 1,000.
    """

    mean: float
    interval: tuple[float, float]
    on_new_tasks: tuple[float, float] | None
    seeds: int
    tasks: int
    seed_spread: float
    needed: dict[float, int | None]

    @property
    def says(self) -> str:
        """What the seeds tell: a gain or a loss, alike within 3 points, or not settled, and then what would settle it."""
        low, high = self.interval
        ends = f"{low:+.1f} to {high:+.1f}"
        if low > 0.0 or high < 0.0:
            return f"{self.mean:+.1f} ({ends})"
        if low > -ALIKE and high < ALIKE:
            return f"alike within {ALIKE:g} points: {self.mean:+.1f} ({ends})"
        seeds = self.needed[ALIKE]
        return f"not settled: {ends}; {seeds or f'over {MOST_SEEDS:,}'} seeds would see {ALIKE:g} points"


def difference_of(ours: npt.ArrayLike, theirs: npt.ArrayLike) -> MethodDifference:
    """Compare two methods.

    Args:
        ours: Figures in [0, 1] of a method, [seeds, tasks]; or [seeds], the seeds' means.
        theirs: The same of the other method, with the same seeds and tasks in the same order.

    Raises:
        ValueError: shapes differ, there are fewer than two seeds, or a figure is missing.
    """
    first, second = 100.0 * np.asarray(ours, dtype=np.float64), 100.0 * np.asarray(theirs, dtype=np.float64)
    if first.shape != second.shape or first.ndim not in (1, 2) or len(first) < 2 or not np.isfinite(first - second).all():
        raise ValueError(f"methods are compared on two seeds or more, paired: {first.shape} and {second.shape}")
    crossed = first.ndim == 2
    d = first - second if crossed else (first - second)[:, None]
    seeds, tasks = d.shape
    by_seed = d.mean(axis=1)
    spread = float(by_seed.std(ddof=1))
    return MethodDifference(
        float(d.mean()),
        _over_seeds(by_seed),
        _on_new_tasks(d) if crossed and tasks > 1 else None,
        seeds,
        tasks if crossed else 0,
        spread,
        {gain: seeds_needed(gain, spread) for gain in GAINS},
    )


def variances_of(d: npt.NDArray[np.float64]) -> dict[str, float]:
    """Variance components of differences [seeds, tasks] by their mean squares; some are below 0 by chance."""
    at_seed, at_task, rest = _mean_squares(d)
    seeds, tasks = d.shape
    return {"seed": (at_seed - rest) / tasks, "task": (at_task - rest) / seeds, "rest": rest}


def seeds_needed(gain: float, spread: float) -> int | None:
    """Seeds with which the two-sided t-test sees a difference of `gain` with 80% power; None above 1,000.

    Args:
        gain: In points.
        spread: Standard deviation of the seeds' mean differences, in points.
    """
    for seeds in range(2, MOST_SEEDS + 1):
        limit = stats.t.isf((1 - CONFIDENCE) / 2, seeds - 1)
        if not spread or stats.nct.sf(limit, seeds - 1, gain * np.sqrt(seeds) / spread) >= POWER:
            return seeds
    return None


def ratio_over_seeds(ratios: npt.ArrayLike) -> str:
    """The geometric mean of the seeds' ratios with its interval: Student's t on their logarithms."""
    logs = np.log(np.asarray(ratios, dtype=np.float64))
    low, high = np.exp(_over_seeds(logs))
    return f"{np.exp(logs.mean()):.3g} ({low:.3g} to {high:.3g} over {len(logs)} seeds)"


def figures_of(by_seed: list[pd.DataFrame], greedy_weight: float = 0.5) -> npt.NDArray[np.float64]:
    """The gate's figure by seed and task of a method's results, [seeds, tasks], tasks in the order of their ids.

    Raises:
        ValueError: the seeds have other tasks.
    """
    rows = []
    for results in by_seed:
        sampled = results["sampled_successes"] / results["sampled_attempts"]
        rows.append(
            (greedy_weight * results["greedy"] + (1 - greedy_weight) * sampled).set_axis(results["task_id"]).sort_index()
        )
    if any(not row.index.equals(rows[0].index) for row in rows):
        raise ValueError("the seeds have other tasks: compare their means")
    return np.array(rows)


def method_table(differences: dict[str, MethodDifference]) -> str:
    """A Markdown table: a row each, with the interval over seeds, that on new tasks too, and the seeds that gains need."""
    rows: list[list[Any]] = []
    for name, found in differences.items():
        new = "–" if found.on_new_tasks is None else "{:+.1f} to {:+.1f}".format(*found.on_new_tasks)
        needed = [str(found.needed[gain] or f"> {MOST_SEEDS:,}") for gain in GAINS]
        rows.append([name, f"{found.mean:+.1f}", found.says, new, *needed])
    head = ["method minus method", "mean", f"over {_counts(differences)} seeds, these tasks", "new tasks too"]
    return table([*head, *(f"seeds for {gain:g} points" for gain in GAINS)], rows)


def _counts(differences: dict[str, MethodDifference]) -> str:
    return " or ".join(str(count) for count in sorted({found.seeds for found in differences.values()}))


def _over_seeds(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    mean = float(values.mean())
    half = float(stats.t.isf((1 - CONFIDENCE) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return mean - half, mean + half


def _on_new_tasks(d: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The variance of the mean is (at_seed + at_task - rest) / (seeds tasks), by the expectations of the mean squares."""
    at_seed, at_task, rest = _mean_squares(d)
    seeds, tasks = d.shape
    # Where chance makes it smaller than either, the larger of the two effects alone: the estimate may not fall below both.
    total = max(at_seed + at_task - rest, at_seed, at_task)
    if total <= 0.0:
        return float(d.mean()), float(d.mean())
    freedom = total**2 / (at_seed**2 / (seeds - 1) + at_task**2 / (tasks - 1) + rest**2 / ((seeds - 1) * (tasks - 1)))
    half = stats.t.isf((1 - CONFIDENCE) / 2, max(1.0, freedom)) * np.sqrt(total / d.size)
    mean = float(d.mean())
    return mean - half, mean + half


def _mean_squares(d: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """Those of seeds, of tasks, and of the rest."""
    seeds, tasks = d.shape
    mean, by_seed, by_task = d.mean(), d.mean(axis=1), d.mean(axis=0)
    rest = d - by_seed[:, None] - by_task[None, :] + mean
    return (
        float(tasks * ((by_seed - mean) ** 2).sum() / (seeds - 1)),
        float(seeds * ((by_task - mean) ** 2).sum() / (tasks - 1)),
        float((rest**2).sum() / ((seeds - 1) * (tasks - 1))),
    )
