"""What tasks of one family and tier tell of each other: partial pooling of their success rates.

A family's rate is (1 + S) / (2 + N) of its S successes in N attempts; a tier's is drawn to its family's as if by k attempts,
and a task's to its tier's in the same way, which is the Beta-binomial model with a prior of k attempts at each floor
(Gelman et al., Bayesian Data Analysis, chapter 5). What a task's kin tells never counts more than their own attempts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

Kin = Mapping[str, tuple[str, int]]  # family and tier by task id


def pooled(
    evidence: Mapping[str, tuple[float, float]], kin: Kin, attempts: float
) -> dict[tuple[str, int], tuple[float, float]]:
    """What to add to the successes and failures of each task, by family and tier.

    Args:
        evidence: Successes and failures by task id; those of tasks that are not in `kin` are left out.
        kin: Family and tier of each task.
        attempts: k, the number of attempts that kin counts for.
    """
    families: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    tiers: defaultdict[tuple[str, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for task_id in sorted(evidence.keys() & kin.keys()):  # sums of floats depend on the order
        for counts in (families[kin[task_id][0]], tiers[kin[task_id]]):
            counts[0] += evidence[task_id][0]
            counts[1] += evidence[task_id][1]
    told = {}
    for family, tier in sorted(set(kin.values())):
        successes, failures = families[family]
        of_family = (1.0 + successes) / (2.0 + successes + failures)
        solved, failed = tiers[family, tier]
        rate = (attempts * of_family + solved) / (attempts + solved + failed)
        strength = min(attempts, successes + failures)
        told[family, tier] = (strength * rate, strength * (1.0 - rate))
    return told
