"""Two policies' outcomes on the same tasks: the difference on each task, and how far missing episodes could move it.

A policy's figure on a task is `greedy_weight` times its greedy success plus the rest times its sampled success rate: with
the default of 1/2, the figure by which validation chooses the best iteration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tracewheel.core.errors import DataError
from tracewheel.core.inference import pass_at_k

if TYPE_CHECKING:
    import pandas as pd

Vector = npt.NDArray[np.float64]
NEEDED = ("task_id", "family", "greedy")
COMPONENT = "component"  # what hangs together has one; results of earlier versions lack it
SUCCESSES, ATTEMPTS = "sampled_successes", "sampled_attempts"
MISSING = ("unscored", "failed")
RESULTS_FILE = "results.parquet"  # of an evaluation: a row a task


@dataclass(frozen=True)
class Outcomes:
    """One policy's episodes, an element per task.

    Attributes:
        greedy: 1, 0, or NaN where the episode could not be scored.
        successes: Successes of the sampled episodes.
        attempts: Sampled episodes that were scored.
        offered: Sampled episodes that were played, scored or not.
        played: Whether the task was played greedily, scored or not; None when all were.
    """

    greedy: Vector
    successes: Vector
    attempts: Vector
    offered: Vector
    played: npt.NDArray[np.bool_] | None = None

    @property
    def played_greedily(self) -> npt.NDArray[np.bool_]:
        return np.ones(len(self.greedy), dtype=bool) if self.played is None else self.played

    @property
    def missing(self) -> int:
        """Episodes that were played and could not be scored."""
        return int((np.isnan(self.greedy) & self.played_greedily).sum() + (self.offered - self.attempts).sum())


@dataclass(frozen=True)
class Paired:
    """Differences, challenger minus baseline, in [-1, 1].

    `lowest`, `highest`, `families` and `components` have an element for each task with an episode that was scored for either
    policy; `seen`, `seen_families` and `seen_components` for each task on which all compared modes were scored for both.

    Attributes:
        lowest: With the challenger's missing episodes as failures and the baseline's as successes; `highest` the reverse.
        components: Tasks with one label hang together (a user, a session, a template, copies).
        seen: From the scored episodes.
        greedy: Differences in greedy success; `greedy_lowest` with missing ones at their worst, of `greedy_components`.
        sampled: Differences in the sampled rate; empty when no sampled episodes are compared.
        baseline: The baseline's figure on each task of `lowest`, its missing episodes as successes.
        compares_sampled: Whether sampled episodes count: both policies have some.
    """

    lowest: Vector
    highest: Vector
    families: npt.NDArray[np.object_]
    components: npt.NDArray[np.int64]
    seen: Vector
    seen_families: npt.NDArray[np.object_]
    seen_components: npt.NDArray[np.int64]
    greedy: Vector
    greedy_lowest: Vector
    greedy_components: npt.NDArray[np.int64]
    sampled: Vector
    baseline: Vector
    compares_sampled: bool


def read_outcomes(results: pd.DataFrame) -> Outcomes:
    """The episodes in a table of results, in its order; see `evaluation.evaluate`.

    A table that does not count missing episodes (of an earlier version) is taken to have played each task greedily, and as
    many sampled episodes of each task as its most complete task has.
    """
    none = np.zeros(len(results))
    attempts = results[ATTEMPTS].to_numpy(np.float64) if ATTEMPTS in results else none
    successes = results[SUCCESSES].to_numpy(np.float64) if SUCCESSES in results else none
    greedy = results["greedy"].to_numpy(np.float64)
    lost = {mode: [f"{mode}_{ending}" for ending in MISSING] for mode in ("greedy", "sampled")}
    if not set(lost["greedy"] + lost["sampled"]) <= set(results.columns):
        return Outcomes(greedy, successes, attempts, np.full(len(results), attempts.max(initial=0.0)))
    offered = attempts + results[lost["sampled"]].sum(axis=1).to_numpy(np.float64)
    played = ~np.isnan(greedy) | (results[lost["greedy"]].sum(axis=1).to_numpy() > 0)
    return Outcomes(greedy, successes, attempts, offered, played)


def task_rates(results: pd.DataFrame) -> pd.DataFrame:
    """Greedy and sampled success by task; NaN where no episode of the task is scored."""
    sampled = results[SUCCESSES] / results[ATTEMPTS].where(results[ATTEMPTS] > 0)
    return results.assign(sampled=sampled).set_index("task_id")[["greedy", "sampled"]]


def task_pass_at(results: pd.DataFrame, k: int) -> pd.Series:
    """The unbiased pass@k of each task, in the order of the table; NaN with fewer than k scored episodes."""
    counts = zip(results[ATTEMPTS].astype(int), results[SUCCESSES].round().astype(int), strict=True)
    rates = [pass_at_k(n, correct, k) if n >= k else np.nan for n, correct in counts]
    return results[ATTEMPTS].astype(np.float64) * 0.0 + rates


def check_results(results: pd.DataFrame, name: str) -> None:
    """Raise a `DataError` where a column is missing, a task occurs twice, or a figure is out of range."""
    if missing := set(NEEDED) - set(results.columns):
        raise DataError(f"the results of {name} lack {', '.join(sorted(missing))}")
    repeated = results["task_id"][results["task_id"].duplicated()]
    if len(repeated):
        raise DataError(f"the results of {name} hold a task more than once: {repeated.iloc[0]}")
    if not results["greedy"].dropna().between(0.0, 1.0).all():
        raise DataError(f"the results of {name} hold a greedy success outside 0 to 1")
    found = read_outcomes(results)
    if not ((found.successes >= 0) & (found.successes <= found.attempts)).all():
        raise DataError(f"the results of {name} hold {SUCCESSES} outside 0 to {ATTEMPTS}")


def common_components(*results: pd.DataFrame) -> npt.NDArray[np.int64]:
    """A label for each task, equal where any of the tables says that tasks hang together.

    Curations may differ: a later one knows of links that an earlier one did not see. A task without a component (of results
    of an earlier version) is alone.

    Args:
        results: Tables of the same tasks, in the same order.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(results[0])
    tasks, parts, end = [], [], count
    for table in results:
        if COMPONENT in table and count:
            codes = table[COMPONENT].factorize()[0]
            known = np.flatnonzero(codes >= 0)
            tasks.append(known)
            parts.append(codes[known] + end)
            end += int(codes.max()) + 1
    if not tasks:
        return np.arange(count)
    rows, columns = np.concatenate(tasks), np.concatenate(parts)
    graph = coo_array((np.ones(len(rows)), (rows, columns)), shape=(end, end))
    return connected_components(graph, directed=False)[1][:count].astype(np.int64)


def pair(
    challenger: Outcomes,
    baseline: Outcomes,
    families: npt.NDArray[np.object_],
    greedy_weight: float,
    components: npt.NDArray[np.int64] | None = None,
) -> Paired:
    """Compare two policies on the same tasks, in the same order.

    An episode that is missing for one policy takes its worst value. Where a mode (greedy, or all sampled episodes) is missing
    for both, or was not played for one (as when an evaluation ends early), the task counts by the other mode; a task without
    any scored episode is left out, since nothing then depends on which policy played.
    """
    parts = np.arange(len(families)) if components is None else components
    compares_sampled = greedy_weight < 1.0 and bool(challenger.attempts.any() and baseline.attempts.any())
    with np.errstate(invalid="ignore", divide="ignore"):
        greedy = challenger.greedy - baseline.greedy
        sampled = challenger.successes / challenger.attempts - baseline.successes / baseline.attempts
    greedy_low, greedy_high = _greedy_range(challenger, baseline)
    sampled_low, sampled_high = _sampled_range(challenger, baseline)
    has_greedy = challenger.played_greedily & baseline.played_greedily
    has_greedy &= ~(np.isnan(challenger.greedy) & np.isnan(baseline.greedy))
    has_sampled = (challenger.offered > 0) & (baseline.offered > 0) & compares_sampled
    has_sampled &= (challenger.attempts > 0) | (baseline.attempts > 0)
    weight = np.where(has_greedy, np.where(has_sampled, greedy_weight, 1.0), 0.0)
    counted = has_greedy | has_sampled
    lowest = weight * greedy_low + (1.0 - weight) * sampled_low
    highest = weight * greedy_high + (1.0 - weight) * sampled_high
    theirs = weight * np.nan_to_num(baseline.greedy, nan=1.0) + (1.0 - weight) * _rate_range(baseline)[1]
    both = greedy_weight * greedy + (1.0 - greedy_weight) * sampled if compares_sampled else greedy
    complete = ~np.isnan(both)
    return Paired(
        lowest=lowest[counted],
        highest=highest[counted],
        families=families[counted],
        components=parts[counted],
        seen=both[complete],
        seen_families=families[complete],
        seen_components=parts[complete],
        greedy=greedy[~np.isnan(greedy)],
        greedy_lowest=greedy_low[has_greedy],
        greedy_components=parts[has_greedy],
        sampled=sampled[~np.isnan(sampled)] if compares_sampled else np.zeros(0),
        baseline=theirs[counted],
        compares_sampled=compares_sampled,
    )


def _greedy_range(challenger: Outcomes, baseline: Outcomes) -> tuple[Vector, Vector]:
    new, old = challenger.greedy, baseline.greedy
    return np.nan_to_num(new, nan=0.0) - np.nan_to_num(old, nan=1.0), np.nan_to_num(new, nan=1.0) - np.nan_to_num(old, nan=0.0)


def _sampled_range(challenger: Outcomes, baseline: Outcomes) -> tuple[Vector, Vector]:
    new, old = _rate_range(challenger), _rate_range(baseline)
    return new[0] - old[1], new[1] - old[0]


def _rate_range(policy: Outcomes) -> tuple[Vector, Vector]:
    offered = np.maximum(policy.offered, 1.0)
    least = policy.successes / offered
    return least, np.where(policy.offered > 0, least + (policy.offered - policy.attempts) / offered, 1.0)
