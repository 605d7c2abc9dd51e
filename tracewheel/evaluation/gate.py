"""The gate: promotes a challenger that is significantly better than the baseline and harms no task family.

`docs/gate.md` has the estimand and the tests, `benchmarks/results/gate.md` the derivation of a year's error, and figures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from tracewheel.config import GateConfig
from tracewheel.core.inference import Labels, components_needed, gain_z, mean_interval, precision, sign_flip_p
from tracewheel.evaluation.error_budget import Look, level_of
from tracewheel.evaluation.family_harm import FamilyEstimate, family_estimates
from tracewheel.evaluation.paired_outcomes import Paired, check_results, common_components, pair, read_outcomes
from tracewheel.evaluation.power import describe_power, too_few_components
from tracewheel.evaluation.refusal import Found, refusal_of
from tracewheel.evaluation.winners import expected_gain

if TYPE_CHECKING:
    import pandas as pd

MIN_FIDELITY = 0.99  # of the updates on programs (docs/gateway.md)
GATE_FILE = "gate.json"
EXPLAINED = "false accepts alone could explain the gain"
LEAST_PAIRED_SHARE = 0.5
GREEDY = "greedy success"
NAMED = 6  # of what may fall, in a sentence
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
        components: Of the tasks that are compared; `effective_components` is how many of equal size tell as much.
        not_ruled_out: What may fall by `family_margin` or more: families, and greedy success.
        spread: Standard deviation of the differences between tasks, for the power of the next gate; what hangs together
            widens it.
        power: What this gate could see; see `power.describe_power`.
        cause: Of a refusal, one of `refusal.CAUSES`, or `waits` (`candidate.waits`); `says` is its sentence, `advice` the next
            thing to do.
        expected_gain: Of a promotion, the gain to expect, which is less than the measured one; see `winners.expected_gain`.
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
    components: int | None = None
    effective_components: float | None = None
    not_ruled_out: list[str] = field(default_factory=list)
    spread: float | None = None
    power: dict[str, Any] = field(default_factory=dict)
    cause: str | None = None
    says: str | None = None
    advice: str | None = None
    expected_gain: float | None = None

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
    not fall significantly, nor by more than `family_margin`; each family has a pair, and none is harmed (`family_harm`).

    Args:
        config: Confidence over a year, family margin and minimum number of pairs.
        challenger: Results of one evaluation: `task_id`, `family`, `greedy` (1, 0, or NaN where the
            episode could not be scored), and where there are any `component`, `sampled_successes`, `sampled_attempts`, and the
            counts of missing episodes.
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
    paired = pair(ours, theirs, new["family"].to_numpy(dtype=object), config.greedy_weight, common_components(new, old))
    offered = len(set(challenger["task_id"]) | set(champion["task_id"]))
    every = sorted({*challenger["family"], *champion["family"]})
    families = {name: _mean(paired.seen[paired.seen_families == name]) for name in every}
    estimates = _estimates(config, paired) if len(paired.lowest) else {}
    interval = mean_interval(paired.lowest, paired.highest, level, paired.components) if len(paired.lowest) else None
    known = precision(paired.seen, paired.seen_components)
    falls = _falls(config, paired, families, estimates)
    failed = [
        *_too_few(config, paired, offered),
        *_gain_not_shown(paired, level, interval, baseline),
        *falls.values(),
        *(explained := explained_by_false_accepts(paired, level, false_accepts)),
    ]
    spread = known.error * len(paired.seen) ** 0.5 if known.components > 1 else None
    power = describe_power(len(common), level, spread)
    missing = {"challenger": ours.missing, "baseline": theirs.missing}
    gain = shows_gain(paired.lowest, level, paired.components)
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
        shows_gain(paired.seen, level, paired.seen_components),
        list(falls),
        bool(explained),
        baseline,
        trained,
    )
    why = refusal_of(found) if failed else None
    may_fall = _not_ruled_out(config, paired, estimates)
    return Verdict(
        verdict="refused" if failed else "promoted",
        reasons=failed or _shown(config, paired, interval, level, baseline, may_fall),
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
        p_value=sign_flip_p(paired.lowest, paired.components),
        level=level,
        look=number,
        greedy_difference=_mean(paired.greedy),
        sampled_difference=_mean(paired.sampled),
        missing=missing,
        judged_families={name: estimate.judged for name, estimate in estimates.items()},
        components=known.components,
        effective_components=known.effective,
        not_ruled_out=may_fall,
        spread=spread,
        power=power,
        cause=why.cause if why else None,
        says=why.says if why else None,
        advice=why.advice if why else None,
        expected_gain=None if failed else _expected(paired, level),
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
        says=f"only {fidelity:.1%} of the training is faithful to what programs were told; {MIN_FIDELITY:.0%} is needed",
        advice="look at Fidelity on the run's page: it says which tokens or rows were lost",
        expected_gain=None,
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
    low, _ = mean_interval(paired.lowest - needed, paired.highest - needed, level, paired.components)
    if low > 0.0:
        return []
    return [
        f"{EXPLAINED}: if graders accept {share:.1%} of failures, {float(needed.mean()):+.3f} "
        f"of {float(paired.lowest.mean()):+.3f} is no gain, and what is left is not certain ({_share(level)} interval from "
        f"{low:+.3f}): mend the graders, or audit them on more tasks (gate.false_accepts)"
    ]


def promotes(config: GateConfig, paired: Paired, level: float) -> bool:
    """Whether paired differences pass the conditions on a gain, on greedy success and on families, without the reasons."""
    if not shows_gain(paired.lowest, level, paired.components) or _greedy_falls(config, paired):
        return False
    return not any(estimate.is_harmed(config.family_margin) for estimate in _estimates(config, paired).values())


def shows_gain(differences: npt.NDArray[np.float64], level: float, components: Labels = None) -> bool:
    """Whether the mean difference is significantly positive, by two tests that err in different places.

    The randomisation test is exact for policies that are exchangeable on each task, however few tasks differ. The empirical
    likelihood keeps its level when a challenger gains a little on most tasks and loses much on a few. Both take tasks with one
    label of `components` as one.
    """
    if level <= 0.0 or differences.sum() <= 0.0 or sign_flip_p(differences, components) > level:
        return False
    return gain_z(differences, components) > -NormalDist().inv_cdf(level)


def _estimates(config: GateConfig, paired: Paired) -> dict[str, FamilyEstimate]:
    return family_estimates(paired.lowest, paired.families, config.confidence, paired.components)


def _too_few(config: GateConfig, paired: Paired, offered: int) -> list[str]:
    reasons, pairs = [], len(paired.seen)
    if pairs < config.min_pairs:
        reasons.append(f"only {pairs} tasks are scored for both policies; at least {config.min_pairs} are needed")
    if pairs < LEAST_PAIRED_SHARE * offered:
        reasons.append(f"only {pairs} of {offered} tasks are scored for both policies; at least half are needed")
    return reasons


def _gain_not_shown(paired: Paired, level: float, interval: tuple[float, float] | None, baseline: str) -> list[str]:
    if interval is None or shows_gain(paired.lowest, level, paired.components):
        return []
    if level <= 0.0:
        return ["no level is left for this gate"]
    p_value = sign_flip_p(paired.lowest, paired.components)
    reason = (
        f"the improvement over {baseline} is not certain: its {_share(level)} interval is "
        f"{interval[0]:+.3f} to {interval[1]:+.3f}, p = {p_value:.2g} at level {level:.2g}"
    )
    if shows_gain(paired.seen, level, paired.seen_components):
        reason += "; without the missing episodes, which count at their worst, it would be"
    together = len(np.unique(paired.components))
    if together < components_needed(level):
        reason += f"; {too_few_components(len(paired.lowest), together, level)}"
    return [reason]


def _falls(
    config: GateConfig, paired: Paired, families: dict[str, float | None], estimates: dict[str, FamilyEstimate]
) -> dict[str, str]:
    """What falls, or may fall unseen, with a reason each."""
    reasons = {}
    if _greedy_falls(config, paired):
        reasons[GREEDY] = f"greedy success falls by {-float(paired.greedy_lowest.mean()):.3f}"
    for family, change in families.items():
        if change is None:
            reasons[f"family {family} (unscored)"] = f"family {family} has no task scored for both policies"
    for family, estimate in estimates.items():
        if estimate.is_harmed(config.family_margin):
            reasons[f"family {family}"] = (
                f"family {family} falls by {-estimate.judged:.3f}, more than {config.family_margin:.2f} "
                f"({estimate.tasks} tasks, mean {estimate.mean:+.3f}, at worst {estimate.low:+.3f})"
            )
    return reasons


def _greedy_falls(config: GateConfig, paired: Paired) -> bool:
    """Whether greedy success falls significantly, or by more than a family may."""
    values = paired.greedy_lowest
    if not len(values) or values.mean() >= -ROUNDING:
        return False
    return values.mean() < -config.family_margin - ROUNDING or shows_gain(
        -values, 1.0 - config.confidence, paired.greedy_components
    )


def _not_ruled_out(config: GateConfig, paired: Paired, estimates: Mapping[str, FamilyEstimate]) -> list[str]:
    """What may fall by more than the margin: by the bounds of all families together, and of greedy success."""
    names = [f"family {name}" for name, estimate in estimates.items() if estimate.may_fall(config.family_margin)]
    values, level = paired.greedy_lowest, 1.0 - config.confidence
    low = mean_interval(values, values, level, paired.greedy_components).low if len(values) else 0.0
    return [*([GREEDY] if low < -config.family_margin else []), *names]


def _shown(
    config: GateConfig,
    paired: Paired,
    interval: tuple[float, float] | None,
    level: float,
    baseline: str,
    may_fall: list[str],
) -> list[str]:
    """The reasons for a promotion."""
    if interval is None:
        return []
    sampled = f", sampled {paired.sampled.mean():+.3f}" if paired.compares_sampled else ""
    return [
        f"success on {len(paired.seen)} tasks differs from {baseline} by {paired.seen.mean():+.3f} "
        f"(greedy {paired.greedy.mean():+.3f}{sampled}), {_share(level)} interval {interval[0]:+.3f} to {interval[1]:+.3f}",
        f"{'not ruled out' if may_fall else 'ruled out for greedy success and each family'} to fall by "
        f"{100 * config.family_margin:g} points{': ' if may_fall else ''}{_listed(may_fall)}",
    ]


def _expected(paired: Paired, level: float) -> float:
    """The gain to expect of a promotion. Its standard error is the one by which the test saw the gain."""
    error = float(paired.lowest.mean()) / gain_z(paired.lowest, paired.components)
    return expected_gain(float(paired.seen.mean()), [(error, level)])


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _share(level: float) -> str:
    """The confidence of a two-sided interval with this level at each end."""
    return f"{100 * (1 - 2 * level):.6g}%"


def _mean(values: npt.NDArray[np.float64]) -> float | None:
    return float(values.mean()) if len(values) else None
