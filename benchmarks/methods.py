"""Two methods compared over seeds: how far another run of each could move their difference, and how many seeds would tell.

Both methods run with the same seeds on the same tasks. With d[s, t] the difference of their figures on seed s and task t,

    d[s, t] = method + seed[s] + task[t] + rest[s, t],

with random effects of the seed, the task, and the seed by the task. The design is balanced, so that the estimates of a mixed
model are those of the two-way analysis of variance (Searle, Casella and McCulloch, Variance Components, 1992, chapter 4). An
interval over the tasks of one run says how far other tasks could move one adapter; this one says how far another run could move
the method.

Few seeds may gain alike by luck. Over T tasks a seed's mean moves by `rest` / sqrt(T) at least, by its own episodes: sampled
attempts that end otherwise, greedy ones that tip. (What the two methods' draws have in common is not in it: differences are
paired.) So, with s the standard deviation of S seeds' means and r^2 the mean square of `rest`, the interval is

    mean +- max(t[S - 1] s, t[(S - 1) (T - 1)] r / sqrt(T)) / sqrt(S),

never narrower than Student's over the seeds, nor than that of seeds which differ by `rest` alone. Where each seed has tasks of
its own, they are part of its luck: r^2 is then the variance over the tasks within a seed, with S (T - 1) degrees of freedom.
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
TINY = 1e-9  # points: less is rounding
ALIKE = 3.0  # points: an interval within them says that two methods are alike


@dataclass(frozen=True)
class MethodDifference:
    """One method minus another, in points.

    Attributes:
        mean: Over seeds and tasks.
        interval: Over seeds, on these tasks: another run of both methods. Infinite where all seeds gain alike and nothing is
            known of their noise.
        on_new_tasks: Over seeds and tasks, by Satterthwaite's degrees of freedom (1946); None where it is not known that all
            seeds have the same tasks.
        seeds, tasks: How many; `tasks` is 0 where only the seeds' means are known.
        seed_spread: Standard deviation of the seeds' means, or that by their noise alone if that is larger.
        same: Whether both methods have the same figure on every task of every seed, as where one left the policy as it was.
    """

    mean: float
    interval: tuple[float, float]
    on_new_tasks: tuple[float, float] | None
    seeds: int
    tasks: int
    seed_spread: float
    same: bool = False

    @property
    def needed(self) -> dict[float, int | None]:
        """Points to the seeds with which so large a difference is seen with 80% power; None above 1,000, or not known."""
        known = np.isfinite(self.interval[0])
        return {gain: seeds_needed(gain, self.seed_spread) if known else None for gain in GAINS}

    @property
    def says(self) -> str:
        """What the seeds tell: a gain or a loss, alike within 3 points, or not settled, and then what would settle it."""
        low, high = self.interval
        ends = f"{low:+.1f} to {high:+.1f}"
        if self.same:
            return "the same on every task"
        if not np.isfinite(low):
            return f"not settled: {self.mean:+.1f} on every seed, outcomes by task are not known"
        if low > 0.0 or high < 0.0:
            return f"{self.mean:+.1f} ({ends})"
        if low > -ALIKE and high < ALIKE:
            return f"alike within {ALIKE:g} points: {self.mean:+.1f} ({ends})"
        seeds = seeds_needed(ALIKE, self.seed_spread)
        return f"not settled: {ends}; {seeds or f'over {MOST_SEEDS:,}'} seeds would see {ALIKE:g} points"


def difference_of(ours: npt.ArrayLike, theirs: npt.ArrayLike, *, same_tasks: bool = True) -> MethodDifference:
    """Compare two methods.

    Args:
        ours: Figures in [0, 1] of a method, [seeds, tasks]; or [seeds], the seeds' means, of whose noise nothing is known.
        theirs: The same of the other method, with the same seeds and tasks in the same order.
        same_tasks: Whether all seeds have the same tasks.

    Raises:
        ValueError: shapes differ, there are fewer than two seeds, or a figure is missing.
    """
    first, second = 100.0 * np.asarray(ours, dtype=np.float64), 100.0 * np.asarray(theirs, dtype=np.float64)
    if first.shape != second.shape or first.ndim not in (1, 2) or len(first) < 2 or not np.isfinite(first - second).all():
        raise ValueError(f"methods are compared on two seeds or more, paired: {first.shape} and {second.shape}")
    by_task = first.ndim == 2
    d = first - second if by_task else (first - second)[:, None]
    seeds, tasks = d.shape
    noise, freedom = _noise_of(d, same_tasks)
    by_seed = d.mean(axis=1)
    spread = max(float(by_seed.std(ddof=1)), noise)
    same = by_task and not d.any()
    known = same or spread > TINY
    return MethodDifference(
        float(d.mean()),
        _over_seeds(by_seed, noise, freedom) if known else (-np.inf, np.inf),
        _on_new_tasks(d) if tasks > 1 and same_tasks and known else None,
        seeds,
        tasks if by_task else 0,
        spread,
        same,
    )


def compared(ours: list[pd.DataFrame], theirs: list[pd.DataFrame]) -> MethodDifference:
    """Compare two methods by the gate's figure, from their results on each seed's tasks, which may be the seed's own.

    Raises:
        ValueError: the methods have other tasks on a seed, or one seed has more than another.
    """
    pairs = [(figures_of(one), figures_of(other)) for one, other in zip(ours, theirs, strict=True)]
    if any(not one.index.equals(other.index) or len(one) != len(pairs[0][0]) for one, other in pairs):
        raise ValueError("the methods have other tasks")
    same_tasks = all(one.index.equals(pairs[0][0].index) for one, _ in pairs)
    return difference_of([one for one, _ in pairs], [other for _, other in pairs], same_tasks=same_tasks)


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


def figures_of(results: pd.DataFrame, greedy_weight: float = 0.5) -> pd.Series:
    """The gate's figure by task of a method's results on a seed, in the order of the tasks' ids."""
    sampled = results["sampled_successes"] / results["sampled_attempts"]
    figures = greedy_weight * results["greedy"] + (1 - greedy_weight) * sampled
    return figures.set_axis(results["task_id"]).sort_index(kind="stable")


def method_table(differences: dict[str, MethodDifference]) -> str:
    """A Markdown table: a row each, with the interval over seeds, that on new tasks too, and the seeds that gains need."""
    rows: list[list[Any]] = []
    for name, found in differences.items():
        new = "–" if found.on_new_tasks is None else "{:+.1f} to {:+.1f}".format(*found.on_new_tasks)
        unsaid = found.same or not np.isfinite(found.interval[0])
        needed = ["–" if unsaid else str(seeds or f"> {MOST_SEEDS:,}") for seeds in found.needed.values()]
        rows.append([name, f"{found.mean:+.1f}", found.says, new, *needed])
    head = ["method minus method", "mean", f"over {_counts(differences)} seeds, these tasks", "new tasks too"]
    return table([*head, *(f"seeds for {gain:g} points" for gain in GAINS)], rows)


def _counts(differences: dict[str, MethodDifference]) -> str:
    return " or ".join(str(count) for count in sorted({found.seeds for found in differences.values()}))


def _over_seeds(values: npt.NDArray[np.float64], noise: float = 0.0, freedom: int = 1) -> tuple[float, float]:
    """The formula above; `noise` is the standard deviation of a seed's mean by its episodes alone."""
    few, many = stats.t.isf((1 - CONFIDENCE) / 2, [len(values) - 1, freedom])
    mean = float(values.mean())
    half = float(max(few * values.std(ddof=1), many * noise) / np.sqrt(len(values)))
    return mean - half, mean + half


def _noise_of(d: npt.NDArray[np.float64], same_tasks: bool) -> tuple[float, int]:
    """The standard deviation of a seed's mean by `rest` (and its own tasks) alone, and its degrees of freedom."""
    seeds, tasks = d.shape
    if tasks < 2:
        return 0.0, 1
    if same_tasks:
        return float(np.sqrt(_mean_squares(d)[2] / tasks)), (seeds - 1) * (tasks - 1)
    return float(np.sqrt(d.var(axis=1, ddof=1).mean() / tasks)), seeds * (tasks - 1)


def _on_new_tasks(d: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The variance of the mean is (at_seed + at_task - rest) / (seeds tasks), by the expectations of the mean squares."""
    at_seed, at_task, rest = _mean_squares(d)
    seeds, tasks = d.shape
    # Where chance makes it smaller than any of the three, the largest alone: the estimate may not fall below them.
    total = max(at_seed + at_task - rest, at_seed, at_task, rest)
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
