"""The gate: promotes a challenger that is significantly better than the baseline and harms no task family.

`docs/gate.md` has the estimand, the tests, the derivation of the error over a year of gates, and their simulated figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from tracewheel.config import GateConfig
from tracewheel.core.paired_tests import likelihood_root, mean_interval, sign_flip_p
from tracewheel.evaluation.error_budget import Look, level_of
from tracewheel.evaluation.family_harm import FamilyEstimate, family_estimates
from tracewheel.evaluation.paired_outcomes import Paired, check_results, pair, read_outcomes
from tracewheel.evaluation.power import describe_power
from tracewheel.evaluation.refusal import Found, refusal_of

if TYPE_CHECKING:
    import pandas as pd

MIN_FIDELITY = 0.99  # of the updates on programs (docs/gateway.md)
GATE_FILE = "gate.json"
EXPLAINED = "false accepts alone could explain the gain"
LEAST_PAIRED_SHARE = 0.5
ROUNDING = 1e-9


@dataclass(frozen=True)
class Verdict:
    """The gate's decision and its reasons, as JSON types. Records of earlier versions lack the fields with defaults.

    Attributes:
        verdict: "promoted" or "refused".
        reasons: Sentences: for a refusal the failed conditions, for a promotion the evidence.
        difference: Mean of the tasks' differences in the policies' figure (greedy and sampled success, weighted) over the
            pairs; None without a pair.
        interval: [low, high] of the difference at this gate's `level`; missing episodes widen it by their worst case.
            None where no episode was scored.
        families: Difference within each family over its pairs; None for a family without a pair.
        baseline: Name of the policy to beat.
        pairs: Tasks scored for both policies.
        left_out: Counts of tasks without a greedy pair: `challenger_unscored`, `baseline_unscored`, `only_in_one`.
        gained: Tasks that only the challenger solves, greedily.
        lost: Tasks that only the baseline solves, greedily.
        p_value: One-sided randomisation test of the differences, with missing episodes at their worst.
        level: What `p_value` must not exceed; see `error_budget`.
        look: The number of this gate among those of its work folder.
        greedy_difference: Mean difference in greedy success; `sampled_difference` in the sampled rate, None where
            sampled episodes are not compared.
        missing: Episodes that could not be scored, of `challenger` and `baseline`.
        judged_families: The estimate by which each family is judged: shrunken, or its own where it stands out.
        spread: Standard deviation of the differences between tasks, for the power of the next gate.
        power: What this gate could see; see `power.describe_power`.
        cause: Of a refusal, one of `refusal.CAUSES`, or `waits` (`candidate.waits`); `says` is its sentence, `advice` the next
            thing to do.
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
    level: float | None = None
    look: int | None = None
    greedy_difference: float | None = None
    sampled_difference: float | None = None
    missing: dict[str, int] = field(default_factory=dict)
    judged_families: dict[str, float] = field(default_factory=dict)
    spread: float | None = None
    power: dict[str, Any] = field(default_factory=dict)
    cause: str | None = None
    says: str | None = None
    advice: str | None = None

    @property
    def promoted(self) -> bool:
        return self.verdict == "promoted"

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def decide(
    config: GateConfig,
    challenger: pd.DataFrame,
    champion: pd.DataFrame,
    *,
    baseline: str = "champion",
    look: Look | None = None,
    level: float | None = None,
    false_accepts: float | None = None,
    trained: bool = True,
) -> Verdict:
    """Promote only on a significant paired improvement that no task family pays for.

    Conditions: at least `min_pairs` tasks, and half of all, are scored for both policies; `shows_gain`; greedy success does
    not fall; each family has a pair, and none is judged to fall by more than `family_margin` (`family_harm`).

    Args:
        config: Confidence over a year, family margin and minimum number of pairs.
        challenger: Results of one evaluation: `task_id`, `family`, `greedy` (1, 0, or NaN where the
            episode could not be scored), and where there are any `sampled_successes`, `sampled_attempts`, and the counts of
            missing episodes.
        champion: The same for the policy to beat.
        baseline: Name of the policy to beat.
        look: The place of this gate in the sequence; by default the first.
        level: Of the tests, in place of the one that this look has.
        false_accepts: The share of failures that the graders might accept; see `explained_by_false_accepts`.
        trained: Whether the challenger is another policy than the one that training began with.

    Raises:
        DataError: a column is missing, a task occurs twice, or a result is out of range.
    """
    check_results(challenger, "challenger")
    check_results(champion, baseline)
    look = look or Look()
    number, level = (look.number, level_of(config, look)) if level is None else (None, level)
    common = sorted(set(challenger["task_id"]) & set(champion["task_id"]))
    new, old = (table.set_index("task_id").loc[common] for table in (challenger, champion))
    ours, theirs = read_outcomes(new), read_outcomes(old)
    paired = pair(ours, theirs, new["family"].to_numpy(dtype=object), config.greedy_weight)
    offered = len(set(challenger["task_id"]) | set(champion["task_id"]))
    every = sorted({*challenger["family"], *champion["family"]})
    families = {name: _mean(paired.seen[paired.seen_families == name]) for name in every}
    estimates = family_estimates(paired.lowest, paired.families, config.confidence) if len(paired.lowest) else {}
    interval = mean_interval(paired.lowest, paired.highest, level) if len(paired.lowest) else None
    falls = _falls(config, paired, families, estimates)
    failed = [
        *_too_few(config, paired, offered),
        *_gain_not_shown(paired, level, interval, baseline),
        *falls.values(),
        *(explained := explained_by_false_accepts(paired, level, false_accepts)),
    ]
    spread = float(paired.seen.std(ddof=1)) if len(paired.seen) > 1 else None
    power = describe_power(len(common), level, spread)
    missing = {"challenger": ours.missing, "baseline": theirs.missing}
    gain = _gain_of(paired.lowest, level)
    if failed and not gain:
        failed.append(power["says"])
    found = Found(
        config,
        ours,
        theirs,
        paired,
        offered,
        level,
        gain,
        _gain_of(paired.seen, level),
        list(falls),
        bool(explained),
        baseline,
        trained,
    )
    why = refusal_of(found) if failed else None
    return Verdict(
        verdict="refused" if failed else "promoted",
        reasons=failed or _shown(config, paired, interval, level, baseline),
        difference=_mean(paired.seen),
        interval=list(interval) if interval else None,
        families=families,
        baseline=baseline,
        confidence=config.confidence,
        pairs=len(paired.seen),
        left_out={
            "challenger_unscored": int(np.isnan(ours.greedy).sum()),
            "baseline_unscored": int(np.isnan(theirs.greedy).sum()),
            "only_in_one": offered - len(common),
        },
        gained=int((paired.greedy > 0).sum()),
        lost=int((paired.greedy < 0).sum()),
        p_value=sign_flip_p(paired.lowest),
        level=level,
        look=number,
        greedy_difference=_mean(paired.greedy),
        sampled_difference=_mean(paired.sampled),
        missing=missing,
        judged_families={name: estimate.judged for name, estimate in estimates.items()},
        spread=spread,
        power=power,
        cause=why.cause if why else None,
        says=why.says if why else None,
        advice=why.advice if why else None,
    )


def held_to_fidelity(config: GateConfig, verdict: Verdict, fidelity: float) -> Verdict:
    """The verdict on a policy whose least faithful update had this fidelity: refused below `min_fidelity`."""
    if fidelity >= MIN_FIDELITY:
        return verdict
    reason = f"fidelity {fidelity:.3f} is below {MIN_FIDELITY:g}"
    return replace(
        verdict,
        verdict="refused",
        reasons=[reason, *(verdict.reasons if not verdict.promoted else [])],
        cause="unfaithful",
        says="the policy was not trained on what programs were told",
        advice="metrics.json of the updates says which share fell short (docs/gateway.md)",
    )


def explained_by_false_accepts(paired: Paired, level: float, share: float | None) -> list[str]:
    """Why a gain may be none: what it is, where a share of failures that pass for successes could explain it.

    At worst all of the baseline's successes are true, and a share e of the challenger's failures is accepted. With true
    success c the challenger then shows c' = c + e (1 - c), so that its true gain over the baseline's b is
    (c' - e) / (1 - e) - b, which is above 0 exactly where

        c' - b > e (1 - b).

    The mean over tasks of c' - b - e (1 - b) must be above 0 at the gate's level: the lower end of its interval, with missing
    episodes at their worst. With e = 0 this asks for nothing new, and where there is no gain there is none to explain.

    Args:
        paired: The differences.
        level: The gate's level.
        share: e, as the upper end of the interval that an audit found; None without one.
    """
    if not share or not len(paired.lowest) or paired.lowest.mean() <= 0.0:
        return []
    needed = share * (1.0 - paired.baseline)
    low, _ = mean_interval(paired.lowest - needed, paired.highest - needed, level)
    if low > 0.0:
        return []
    return [
        f"{EXPLAINED}: if graders accept {share:.1%} of failures, {float(needed.mean()):+.3f} "
        f"of {float(paired.lowest.mean()):+.3f} is no gain, and what is left is not certain ({_share(level)} interval from "
        f"{low:+.3f}): mend the graders, or audit them on more tasks (gate.false_accepts)"
    ]


def promotes(config: GateConfig, paired: Paired, level: float) -> bool:
    """Whether paired differences pass the conditions on a gain, on greedy success and on families, without the reasons."""
    if not shows_gain(paired.lowest, level) or _greedy_falls(paired):
        return False
    estimates = family_estimates(paired.lowest, paired.families, config.confidence)
    return not any(_is_harmed(config, estimate) for estimate in estimates.values())


def shows_gain(differences: npt.NDArray[np.float64], level: float) -> bool:
    """Whether the mean difference is significantly positive, by two tests that err in different places.

    The randomisation test is exact for policies that are exchangeable on each task, however few tasks differ. The empirical
    likelihood keeps its level when a challenger gains a little on most tasks and loses much on a few.
    """
    if level <= 0.0 or differences.sum() <= 0.0 or sign_flip_p(differences) > level:
        return False
    return likelihood_root(differences, 0.0) > -NormalDist().inv_cdf(level)


def _gain_of(differences: npt.NDArray[np.float64], level: float) -> bool:
    return bool(len(differences)) and shows_gain(differences, level)


def _too_few(config: GateConfig, paired: Paired, offered: int) -> list[str]:
    reasons, pairs = [], len(paired.seen)
    if pairs < config.min_pairs:
        reasons.append(f"only {pairs} tasks are scored for both policies; at least {config.min_pairs} are needed")
    if pairs < LEAST_PAIRED_SHARE * offered:
        reasons.append(f"only {pairs} of {offered} tasks are scored for both policies; at least half are needed")
    return reasons


def _gain_not_shown(paired: Paired, level: float, interval: tuple[float, float] | None, baseline: str) -> list[str]:
    if interval is None or shows_gain(paired.lowest, level):
        return []
    if level <= 0.0:
        return ["no level is left for this gate"]
    reason = (
        f"the improvement over {baseline} is not certain: its {_share(level)} interval is "
        f"{interval[0]:+.3f} to {interval[1]:+.3f}, p = {sign_flip_p(paired.lowest):.2g} at level {level:.2g}"
    )
    if shows_gain(paired.seen, level):
        reason += "; without the missing episodes, which count at their worst, it would be"
    return [reason]


def _falls(
    config: GateConfig, paired: Paired, families: dict[str, float | None], estimates: dict[str, FamilyEstimate]
) -> dict[str, str]:
    """What falls, or may fall unseen, with a reason each."""
    reasons = {}
    if _greedy_falls(paired):
        reasons["greedy success"] = f"greedy success falls by {-float(paired.greedy_lowest.mean()):.3f}"
    for family, change in families.items():
        if change is None:
            reasons[f"family {family} (unscored)"] = f"family {family} has no task scored for both policies"
    for family, estimate in estimates.items():
        if _is_harmed(config, estimate):
            reasons[f"family {family}"] = (
                f"family {family} falls by {-estimate.judged:.3f}, more than {config.family_margin:.2f} "
                f"({estimate.tasks} tasks, mean {estimate.mean:+.3f})"
            )
    return reasons


def _is_harmed(config: GateConfig, estimate: FamilyEstimate) -> bool:
    return estimate.judged < -config.family_margin - ROUNDING


def _greedy_falls(paired: Paired) -> bool:
    return len(paired.greedy_lowest) > 0 and float(paired.greedy_lowest.mean()) < -ROUNDING


def _shown(config: GateConfig, paired: Paired, interval: tuple[float, float] | None, level: float, baseline: str) -> list[str]:
    """The reasons for a promotion."""
    if interval is None:
        return []
    sampled = f", sampled {paired.sampled.mean():+.3f}" if paired.compares_sampled else ""
    return [
        f"success on {len(paired.seen)} tasks differs from {baseline} by {paired.seen.mean():+.3f} "
        f"(greedy {paired.greedy.mean():+.3f}{sampled}), {_share(level)} interval {interval[0]:+.3f} to {interval[1]:+.3f}",
        f"no family falls by more than {config.family_margin:.2f}",
    ]


def in_words(gate: Mapping[str, Any]) -> list[str]:
    """A verdict's record as sentences: its cause first, then the evidence, then what to do."""
    return [str(one) for one in (gate.get("says"), *gate.get("reasons", ()), gate.get("advice")) if one]


def _share(level: float) -> str:
    """The confidence of a two-sided interval with this level at each end."""
    return f"{100 * (1 - 2 * level):.6g}%"


def _mean(values: npt.NDArray[np.float64]) -> float | None:
    return float(values.mean()) if len(values) else None
