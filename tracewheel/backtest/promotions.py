"""False promotions: what was promoted although it is not better.

A promotion is *false* when the promoted policy has no higher success than the one that it replaced in service, on the tasks
that users asked for from the promotion to the end of the window. The exam estimates that difference: greedy, the same tasks for
both, and only tasks that no run of the branch had trained or selected on, nor on anything of the same component. Where tasks
drift, the question is that of the user: was the change better for what came after it?

Each promotion has the chance that it is false, given the exam (a flat prior, and a normal distribution of the mean difference).
Their sum is the expected number of false promotions, and its standard deviation is that of independent promotions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from tracewheel.backtest.serving import Served, is_related

if TYPE_CHECKING:
    import pandas

LEAST_TASKS = 20
TRUE, FALSE, OPEN, UNJUDGED = "better", "false", "open", "too few tasks"


@dataclass(frozen=True)
class Promotion:
    """A promotion as the exam judges it.

    Attributes:
        at: When.
        policy, replaced: Digests of the policies.
        tasks: Tasks of the exam that judge it.
        difference: Of success, promoted minus replaced, in points; None without tasks.
        low, high: Its 95% interval.
        false_with: The chance that it is false; None where fewer than `LEAST_TASKS` tasks judge it.
        verdict: `TRUE` or `FALSE` where the interval is on one side of 0, else `OPEN`; `UNJUDGED`.
    """

    at: str
    policy: str
    replaced: str
    tasks: int
    difference: float | None
    low: float | None
    high: float | None
    false_with: float | None
    verdict: str

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def judge_promotions(
    asked: pandas.DataFrame, served: Sequence[Served], scores: Mapping[str, Mapping[str, float]]
) -> list[Promotion]:
    """Judge the promotions of a branch.

    Args:
        asked: The exam.
        served: What served from when on, in the order of time.
        scores: Policy to task id to greedy success.
    """
    return [
        judge(asked, now, before.policy, scores) for before, now in itertools.pairwise(served) if now.policy != before.policy
    ]


def judge(asked: pandas.DataFrame, now: Served, replaced: str, scores: Mapping[str, Mapping[str, float]]) -> Promotion:
    """Judge one promotion; `now` is what holds from it on."""
    since = round(now.since.timestamp() * 1_000_000)
    later = asked[asked["at"] >= since].drop_duplicates("task_id")
    free = [
        task
        for task, print, keys in zip(later["task_id"], later["fingerprint"], later["keys"], strict=True)
        if print not in now.used and not is_related(keys, now)
    ]
    pairs = [(scores[now.policy].get(task), scores[replaced].get(task)) for task in free]
    values = [100.0 * (new - old) for new, old in pairs if new is not None and old is not None and new == new and old == old]
    n, when = len(values), now.since.isoformat(timespec="seconds")
    if n < LEAST_TASKS:
        mean = sum(values) / n if n else None
        return Promotion(when, now.policy, replaced, n, mean, None, None, None, UNJUDGED)
    mean = sum(values) / n
    error = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1) / n)
    half = NormalDist().inv_cdf(0.975) * error
    chance = NormalDist().cdf(-mean / error) if error else float(mean <= 0)
    verdict = TRUE if mean - half > 0 else FALSE if mean + half <= 0 else OPEN
    return Promotion(when, now.policy, replaced, n, mean, mean - half, mean + half, chance, verdict)


def false_promotions(judged: Sequence[Promotion]) -> dict[str, Any]:
    """How many of the judged promotions are expected to be false, with its standard deviation, and counts by verdict."""
    chances = [one.false_with for one in judged if one.false_with is not None]
    verdicts = {name: sum(one.verdict == name for one in judged) for name in (TRUE, FALSE, OPEN, UNJUDGED)}
    return {
        "promotions": len(judged),
        "judged": len(chances),
        "expected": sum(chances),
        "deviation": math.sqrt(sum(chance * (1 - chance) for chance in chances)),
        "verdicts": verdicts,
    }
