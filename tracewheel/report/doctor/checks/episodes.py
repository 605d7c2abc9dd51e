"""Checks of the episodes: how they end, what they call, and whether their groups have anything to learn from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from tracewheel.config import Limits
from tracewheel.core.inference import wilson_interval
from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.report.doctor.finding import Finding, Severity, advice, not_checked, worst
from tracewheel.report.doctor.measures import WINDOW, by_iteration, rates, severity_above, severity_below
from tracewheel.report.doctor.run_records import RunRecords
from tracewheel.scoring.flaws import CAPS, FLAWS, HALF, LOOP, NO_CALL


@dataclass(frozen=True)
class Share:
    """Hits out of totals, both series along the rows of the episodes.

    Attributes:
        hits: What is counted.
        totals: What it is a share of.
        counts: More evidence over the whole run, by name.
    """

    hits: pd.Series
    totals: pd.Series
    counts: Mapping[str, Any] = field(default_factory=dict)


def share_finding(name: str, records: RunRecords, share: Share, limits: Limits) -> Finding:
    """Compare a share over the last iterations with its limits.

    It is unhealthy where the lower end of its 95% interval reaches the warning, so a few bad episodes among few are not
    a finding.
    """
    figures = rates(records.count(share.hits), records.count(share.totals), WINDOW)
    if not figures:
        return not_checked(name, "There is nothing to count.")
    severities = {number: severity_above(rate.value, limits, lower_bound=rate.low) for number, rate in figures.items()}
    sick = tuple(number for number, found in severities.items() if found != "healthy")
    top = max((figures[number] for number in sick or figures), key=lambda rate: rate.value)
    evidence: dict[str, Any] = {"share": top.value, "at least": top.low, "of": top.n}
    evidence |= {f"in all, {key}": value for key, value in share.counts.items()}
    evidence["by_iteration"] = {number: rate.value for number, rate in figures.items()}
    return Finding(name, worst(severities.values()), evidence, advice(name) if sick else "", sick)


MANY_BROKEN, MOST_BROKEN = 0.05, 0.5


def broken_programs(records: RunRecords) -> Finding:
    """The share of episodes that failed in their program, and what most of them ended by."""
    if "broken" not in records.episodes:
        return not_checked("broken_programs", "No program has failed.")
    broken = records.episodes["broken"].notna()
    counts, totals = records.count(broken), records.count(broken | True)
    shares = {number: counts.get(number, 0) / total for number, total in totals.items()}
    sick = tuple(number for number, share in shares.items() if share > MANY_BROKEN)
    detail, most = Counter(records.episodes["broken"].dropna()).most_common(1)[0]
    evidence = {"share": max(shares.values()), "in all": int(broken.sum()), "most often": detail, "so many": most}
    severity: Severity = "severe" if max(shares.values()) > MOST_BROKEN else "warning" if sick else "healthy"
    return Finding(
        "broken_programs", severity, {**evidence, "by_iteration": shares}, advice("broken_programs") if sick else "", sick
    )


def truncation(records: RunRecords) -> Finding:
    """The share of episodes that a cap on tokens or turns ended."""
    if records.episodes.empty:
        return not_checked("truncation", "No trajectories are stored.")
    reasons = records.episodes["stop_reason"]
    cut = reasons.isin(CAPS)
    by_cap = {f"by {cap}": int((reasons == cap).sum()) for cap in CAPS}
    return share_finding("truncation", records, Share(cut, reasons.notna(), by_cap), records.config.doctor.limit("truncation"))


MOST_NAMES = 5


def unrecorded_calls(records: RunRecords) -> Finding:
    """The share of episodes that made a call for which the recorded environment has no reply."""
    if not records.config.environment.kind.startswith(RECORDED):
        return not_checked("unrecorded_calls", "The environment is not a recorded one.")
    if records.episodes.empty:
        return not_checked("unrecorded_calls", "No trajectories are stored.")
    # Episodes that the infrastructure failed have no final state.
    played = records.episodes["stop_reason"] != "infrastructure_failed"
    met = records.episodes["unrecorded"].map(len)
    names = Counter(name for names in records.episodes["unrecorded"] for name in names)
    calls = int(records.episodes["named_calls"].sum())
    counts = {
        "share of calls": int(met.sum()) / calls if calls else 0.0,
        "tools": [name for name, _ in names.most_common(MOST_NAMES)],
    }
    return share_finding(
        "unrecorded_calls", records, Share(met > 0, played, counts), records.config.doctor.limit("unrecorded_calls")
    )


def invented_tools(records: RunRecords) -> Finding:
    """The share of well-formed calls that name a tool which was not offered."""
    if not records.tools:
        return not_checked("invented_tools", "The environment's tools are not known here.")
    if records.episodes.empty or not records.episodes["named_calls"].sum():
        return not_checked("invented_tools", "No trajectory holds a well-formed call.")
    unknown = records.episodes["unknown_tools"]
    names = Counter(name for names in unknown for name in names)
    counts = {"names": [name for name, _ in names.most_common(MOST_NAMES)]}
    limits = records.config.doctor.limit("invented_tools")
    return share_finding("invented_tools", records, Share(unknown.map(len), records.episodes["named_calls"], counts), limits)


REPEATED_PHRASES = 0.5  # the share of repeated phrases in one turn


def repetition(records: RunRecords) -> Finding:
    """The share of episodes that repeat a cycle of calls three times with equal replies, or have a repetitive turn."""
    if records.episodes.empty:
        return not_checked("repetition", "No trajectories are stored.")
    loops = records.episodes["loop"] >= LOOP
    phrases = records.episodes["repetition"] >= REPEATED_PHRASES
    counts = {"with a loop of calls": int(loops.sum()), "with a repeating turn": int(phrases.sum())}
    limits = records.config.doctor.limit("repetition")
    share = Share(loops | phrases, records.episodes["id"].notna(), counts)
    return share_finding("repetition", records, share, limits)


def flawed_success(records: RunRecords) -> Finding:
    """The share of successes that have one of `flaws`."""
    if records.episodes.empty or not (records.episodes["success"] > 0).any():
        return not_checked("flawed_success", "No success is stored.")
    success = records.episodes["success"] > 0
    found = {name: flawed & success for name, flawed in flaws(records).items()}
    flawed = pd.DataFrame(found).any(axis=1)
    counts: dict[str, Any] = {name: int(flag.sum()) for name, flag in found.items() if flag.any()}
    counts["for example"] = records.episodes.loc[flawed, "id"].head(3).tolist()
    return share_finding(
        "flawed_success", records, Share(flawed, success, counts), records.config.doctor.limit("flawed_success")
    )


def flaws(records: RunRecords) -> dict[str, pd.Series]:
    """For each kind of flaw, whether each episode has it. A single error that the episode recovered from is not a flaw."""
    episodes = records.episodes
    found = {name: records.flaws[name] for name in FLAWS}
    found["a step back"] = episodes["negative_rewards"] > 0
    if records.tools:
        found[NO_CALL] = episodes["calls"] == 0
    if records.graders:
        found["another grader disagrees"] = (episodes[records.graders] < HALF).any(axis=1)
    return found


def weak_start(records: RunRecords) -> Finding:
    """pass@k of the groups of the first iterations, or before the first iteration of the validation at the start."""
    limits = records.config.doctor.limit("pass_at_k")
    groups = _first_groups(records)
    if groups is None:
        return not_checked("weak_start", "Neither a validation at the start nor a scored group is stored.")
    solved, k, where, varied = groups
    rate, high = float(solved.mean()), wilson_interval(float(solved.sum()), len(solved)).high
    severity = severity_below(rate, limits, upper_bound=high)
    if severity == "severe" and varied is not None and varied > limits.warn:
        severity = "warning"  # partial rewards still give a gradient
    evidence = {"pass@k": rate, "k": k, "at most": high, "tasks": len(solved), "measured on": where}
    if varied is not None:
        evidence["groups whose rewards differ"] = varied
    return Finding(
        "weak_start",
        severity,
        evidence,
        "" if severity == "healthy" else advice("weak_start"),
        () if severity == "healthy" else (0,),
    )


def _first_groups(records: RunRecords) -> tuple[pd.Series, int, str, float | None] | None:
    """Whether each task was solved, the attempts k, the source, and the share of groups whose rewards differ."""
    first = [item.number for item in records.iterations[:WINDOW]]
    scored = records.span(first).dropna(subset=["success"]) if first else None
    if scored is not None and not scored.empty:
        groups = scored.groupby(["iteration", "group"])
        varied = float((groups["total"].nunique() > 1).mean())
        return (groups["success"].max() > 0).astype(float), int(groups.size().max()), "the first training groups", varied
    start = records.validations.get(0)
    if start is None:
        return None
    tried = start[start["greedy"].notna() | (start["sampled_attempts"] > 0)]
    if tried.empty:
        return None
    solved = ((tried["greedy"].fillna(0.0) > 0) | (tried["sampled_successes"] > 0)).astype(float)
    return solved, 1 + int(tried["sampled_attempts"].max()), "the validation split", None


SOLVED = 0.9  # the share of solved groups from which the tasks are too easy


def zero_variance(records: RunRecords) -> Finding:
    """The share of groups without a gradient; those that fail are counted apart from those that are solved."""
    scored = records.episodes.dropna(subset=["total"]) if not records.episodes.empty else records.episodes
    if scored.empty:
        return not_checked("zero_variance", "No scored group is stored.")
    groups = scored.groupby(["iteration", "group"]).agg(
        values=("total", "nunique"), success=("success", "min"), size=("total", "size")
    )
    groups = groups[groups["size"] > 1]
    if groups.empty:
        return not_checked("zero_variance", "No group has two scored samples.")
    solved = (groups["values"] == 1) & (groups["success"] > 0)
    alike = (groups["values"] == 1) & ~solved
    limits, window = records.config.doctor.limit("zero_variance"), WINDOW

    of = _counts(groups["size"] > 0)
    hard, easy = rates(_counts(alike), of, window), rates(_counts(solved), of, window)
    severities: dict[int, Severity] = {
        number: severity_above(rate.value, limits, lower_bound=rate.low) for number, rate in hard.items()
    }
    mastered = [number for number, rate in easy.items() if rate.low >= SOLVED]
    evidence = {
        "share alike and not solved": max(rate.value for rate in hard.values()),
        "share solved by all": max(rate.value for rate in easy.values()),
        "groups": len(groups),
        "by_iteration": {number: rate.value + easy[number].value for number, rate in hard.items()},
    }
    sick = [number for number, severity in severities.items() if severity != "healthy"]
    severity = worst(severities.values())
    if severity == "healthy" and mastered:
        return Finding("zero_variance", "warning", evidence, advice("zero_variance.too_easy"), tuple(mastered))
    return Finding("zero_variance", severity, evidence, advice("zero_variance.too_hard") if sick else "", tuple(sick))


def _counts(flags: pd.Series) -> dict[int, int]:
    """How many groups of each iteration are flagged."""
    return {number: int(count) for number, count in by_iteration(flags.groupby("iteration").sum()).items()}
