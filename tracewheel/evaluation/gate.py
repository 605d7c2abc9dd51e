"""The gate: promotes a challenger that is significantly better than the baseline and worse in no task family."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tracewheel.config import GateConfig
from tracewheel.core.errors import DataError
from tracewheel.core.statistics import Interval, mcnemar_mid_p, paired_difference

if TYPE_CHECKING:
    import pandas as pd

GATE_FILE = "gate.json"
LEAST_PAIRED_SHARE = 0.5
ROUNDING = 1e-9


@dataclass(frozen=True)
class Verdict:
    """The gate's decision and its reasons, as JSON types.

    Attributes:
        verdict: "promoted" or "refused".
        reasons: Sentences: for a refusal the failed conditions, for a promotion the evidence.
        difference: Mean greedy success of the challenger minus the baseline's over the pairs; None without a pair.
        interval: [low, high] of the difference, by paired bootstrap; None without a pair.
        families: Difference within each family; None for a family without a pair.
        baseline: Name of the policy to beat.
        pairs: Tasks scored for both policies.
        left_out: Counts of tasks without a pair: `challenger_unscored`, `baseline_unscored`, `only_in_one`.
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
    """Promote only on a significant paired improvement that no task family pays for.

    Conditions: at least `min_pairs` tasks, and half of all, are scored for both policies; the interval's
    lower end is above 0; McNemar's mid-p agrees, because a percentile bootstrap is overconfident when
    few tasks differ (4 gained and none lost of 100 would pass); each family has a pair, and none falls by
    more than `family_margin`.

    Args:
        config: Confidence, family margin and minimum number of pairs.
        challenger: Results of one evaluation: `task_id`, `family`, `greedy` (1, 0, or NaN where the
            episode could not be scored).
        champion: The same for the policy to beat.
        seed: Seed of the bootstrap.
        baseline: Name of the policy to beat.
        resamples: Bootstrap resamples.

    Raises:
        DataError: a column is missing, a task occurs twice, or a result is not within 0 to 1.
    """
    _check(challenger, "challenger")
    _check(champion, baseline)
    compared = _compare(config, challenger, champion, seed, resamples)
    failed = _failed_conditions(config, compared, baseline)
    return Verdict(
        verdict="refused" if failed else "promoted",
        reasons=failed or _shown(config, compared, baseline),
        difference=compared.difference,
        interval=list(compared.interval) if compared.interval else None,
        families=compared.families,
        baseline=baseline,
        confidence=config.confidence,
        pairs=compared.pairs,
        left_out=compared.left_out,
        gained=compared.gained,
        lost=compared.lost,
        p_value=compared.p_value,
    )


@dataclass(frozen=True)
class _Comparison:
    """Challenger and baseline on the tasks that are scored for both; see `Verdict`. Rates are None without a pair.

    Attributes:
        offered: Tasks in either evaluation.
    """

    offered: int
    pairs: int
    left_out: dict[str, int]
    challenger_rate: float | None
    baseline_rate: float | None
    difference: float | None
    interval: Interval | None
    families: dict[str, float | None]
    gained: int
    lost: int
    p_value: float


def _compare(config: GateConfig, challenger: pd.DataFrame, champion: pd.DataFrame, seed: int, resamples: int) -> _Comparison:
    columns = ["task_id", "family", "greedy"]
    both = challenger[columns].merge(champion[columns], on="task_id", suffixes=("", "_baseline")).sort_values("task_id")
    scored = both[both["greedy"].notna() & both["greedy_baseline"].notna()]
    offered = len(set(challenger["task_id"]) | set(champion["task_id"]))
    families: dict[str, float | None] = dict.fromkeys(sorted({*challenger["family"], *champion["family"]}))
    for family, rows in scored.groupby("family"):
        families[str(family)] = float((rows["greedy"] - rows["greedy_baseline"]).mean())
    new, old = scored["greedy"].to_numpy(dtype=np.float64), scored["greedy_baseline"].to_numpy(dtype=np.float64)
    difference, interval = (
        paired_difference(new, old, confidence=config.confidence, resamples=resamples, seed=seed)
        if len(scored)
        else (None, None)
    )
    gained, lost = int((new > old).sum()), int((new < old).sum())
    return _Comparison(
        offered=offered,
        pairs=len(scored),
        left_out={
            "challenger_unscored": int(both["greedy"].isna().sum()),
            "baseline_unscored": int(both["greedy_baseline"].isna().sum()),
            "only_in_one": offered - len(both),
        },
        challenger_rate=float(new.mean()) if len(scored) else None,
        baseline_rate=float(old.mean()) if len(scored) else None,
        difference=difference,
        interval=interval,
        families=families,
        gained=gained,
        lost=lost,
        p_value=mcnemar_mid_p(gained, lost),
    )


def _shown(config: GateConfig, compared: _Comparison, baseline: str) -> list[str]:
    """The reasons for a promotion."""
    if compared.difference is None or compared.interval is None:
        return []
    low, high = compared.interval
    return [
        f"greedy success {compared.challenger_rate:.3f} against {compared.baseline_rate:.3f} of {baseline} on "
        f"{compared.pairs} tasks: difference {compared.difference:+.3f}, "
        f"{config.confidence:.0%} interval {low:+.3f} to {high:+.3f}",
        f"no family falls by more than {config.family_margin:.2f}",
    ]


def _failed_conditions(config: GateConfig, compared: _Comparison, baseline: str) -> list[str]:
    """The reasons for a refusal; empty where the challenger is promoted."""
    reasons, pairs, interval = [], compared.pairs, compared.interval
    if pairs < config.min_pairs:
        reasons.append(f"only {pairs} tasks are scored for both policies; at least {config.min_pairs} are needed")
    if pairs < LEAST_PAIRED_SHARE * compared.offered:
        reasons.append(f"only {pairs} of {compared.offered} tasks are scored for both policies; at least half are needed")
    if interval is not None and interval.low <= 0.0:
        reasons.append(
            f"the improvement over {baseline} is not certain: its {config.confidence:.0%} interval is "
            f"{interval.low:+.3f} to {interval.high:+.3f}"
        )
    elif interval is not None and compared.p_value > 1.0 - config.confidence:
        reasons.append(
            f"too few tasks differ to be certain of the improvement over {baseline}: McNemar's mid-p is {compared.p_value:.3f}"
        )
    for family, change in compared.families.items():
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
