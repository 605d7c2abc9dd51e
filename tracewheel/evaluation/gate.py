"""The gate: is the challenger surely better than the baseline, and worse nowhere that matters?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tracewheel.config import GateConfig
from tracewheel.core.errors import DataError
from tracewheel.core.statistics import Interval, mcnemar_mid_p, paired_difference

if TYPE_CHECKING:
    import pandas as pd

LEAST_PAIRED_SHARE = 0.5
ROUNDING = 1e-9


@dataclass(frozen=True)
class Verdict:
    """What the gate decided and on what grounds; all JSON types.

    Attributes:
        verdict: "promoted" or "refused".
        reasons: Sentences. For a refusal, each condition that failed; for a promotion, what was shown.
        difference: Mean greedy success of the challenger minus the baseline's over the pairs; None
            when there is no pair.
        interval: [low, high] of the difference, by paired bootstrap; None when there is no pair.
        families: Difference within each family; None for a family without a pair.
        baseline: Name of the policy compared with.
        pairs: Tasks scored for both policies.
        left_out: Tasks that are not a pair: `challenger_unscored`, `baseline_unscored`, `only_in_one`.
        gained: Tasks that only the challenger solves.
        lost: Tasks that only the baseline solves.
        p_value: McNemar's mid-p of gained against lost.
    """

    verdict: Literal["promoted", "refused"]
    reasons: list[str]
    difference: float | None
    interval: list[float] | None
    families: dict[str, float | None]
    baseline: str
    confidence: float
    pairs: int
    left_out: dict[str, int]
    gained: int
    lost: int
    p_value: float

    @property
    def promoted(self) -> bool:
        return self.verdict == "promoted"

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def decide(
    config: GateConfig,
    challenger: pd.DataFrame,
    champion: pd.DataFrame,
    seed: int,
    *,
    baseline: str = "champion",
    resamples: int = 2000,
) -> Verdict:
    """Promote only when the paired improvement is certain and no family pays for it.

    Conditions: at least `min_pairs` tasks, and half of all, scored for both policies; the interval's
    lower end above 0; McNemar's mid-p in agreement, because a percentile bootstrap is too sure when
    few tasks differ (4 gained and none lost of 100 would pass); no family's mean falls by more than
    `family_margin`, and each has a pair.

    Args:
        config: Confidence, margin and least number of pairs.
        challenger: Results of one evaluation: `task_id`, `family`, `greedy` (1, 0, or NaN where the
            episode could not be scored).
        champion: The same for the policy to beat.
        seed: Seed of the bootstrap.
        baseline: What to call the policy to beat.
        resamples: Bootstrap resamples.

    Raises:
        DataError: a column is missing, a task occurs twice, or a result is not within 0 to 1.
    """
    _check(challenger, "challenger")
    _check(champion, baseline)
    columns = ["task_id", "family", "greedy"]
    both = challenger[columns].merge(champion[columns], on="task_id", suffixes=("", "_baseline")).sort_values("task_id")
    scored = both[both["greedy"].notna() & both["greedy_baseline"].notna()]
    pairs, offered = len(scored), len(set(challenger["task_id"]) | set(champion["task_id"]))
    left_out = {
        "challenger_unscored": int(both["greedy"].isna().sum()),
        "baseline_unscored": int(both["greedy_baseline"].isna().sum()),
        "only_in_one": offered - len(both),
    }
    families: dict[str, float | None] = dict.fromkeys(sorted({*challenger["family"], *champion["family"]}))
    new, old = scored["greedy"].to_numpy(dtype=np.float64), scored["greedy_baseline"].to_numpy(dtype=np.float64)
    for family, rows in scored.groupby("family"):
        families[str(family)] = float((rows["greedy"] - rows["greedy_baseline"]).mean())
    difference, interval = (
        paired_difference(new, old, confidence=config.confidence, resamples=resamples, seed=seed) if pairs else (None, None)
    )
    gained, lost = int((new > old).sum()), int((new < old).sum())
    p_value = mcnemar_mid_p(gained, lost)
    failed = _failed_conditions(config, interval, p_value, families, pairs, offered, baseline)
    shown = []
    if difference is not None and interval is not None:
        shown = [
            f"greedy success {new.mean():.3f} against {old.mean():.3f} of {baseline} on {pairs} tasks: "
            f"difference {difference:+.3f}, {config.confidence:.0%} interval {interval.low:+.3f} to {interval.high:+.3f}",
            f"no family falls by more than {config.family_margin:.2f}",
        ]
    return Verdict(
        verdict="refused" if failed else "promoted",
        reasons=failed or shown,
        difference=difference,
        interval=list(interval) if interval else None,
        families=families,
        baseline=baseline,
        confidence=config.confidence,
        pairs=pairs,
        left_out=left_out,
        gained=gained,
        lost=lost,
        p_value=p_value,
    )


def _failed_conditions(
    config: GateConfig,
    interval: Interval | None,
    p_value: float,
    families: dict[str, float | None],
    pairs: int,
    offered: int,
    baseline: str,
) -> list[str]:
    reasons = []
    if pairs < config.min_pairs:
        reasons.append(f"only {pairs} tasks are scored for both policies; at least {config.min_pairs} are needed")
    if pairs < LEAST_PAIRED_SHARE * offered:
        reasons.append(f"only {pairs} of {offered} tasks are scored for both policies; at least half are needed")
    if interval is not None and interval.low <= 0.0:
        reasons.append(
            f"the improvement over {baseline} is not certain: its {config.confidence:.0%} interval is "
            f"{interval.low:+.3f} to {interval.high:+.3f}"
        )
    elif interval is not None and p_value > 1.0 - config.confidence:
        reasons.append(
            f"too few tasks differ to be certain of the improvement over {baseline}: McNemar's mid-p is {p_value:.3f}"
        )
    for family, change in families.items():
        if change is None:
            reasons.append(f"family {family} has no task scored for both policies")
        elif change < -config.family_margin - ROUNDING:
            reasons.append(f"family {family} falls by {-change:.3f}, more than {config.family_margin:.2f}")
    return reasons


def _check(results: pd.DataFrame, name: str) -> None:
    missing = {"task_id", "family", "greedy"} - set(results.columns)
    if missing:
        raise DataError(f"the results of {name} lack {', '.join(sorted(missing))}")
    repeated = results["task_id"][results["task_id"].duplicated()]
    if len(repeated):
        raise DataError(f"the results of {name} hold a task more than once: {repeated.iloc[0]}")
    values = results["greedy"].dropna()
    if not values.between(0.0, 1.0).all():
        raise DataError(f"the results of {name} hold a greedy success outside 0 to 1")
