"""Checks of the updates: the policy that sampled, the one that is trained, and how far it moves."""

from __future__ import annotations

import math
from typing import Any

from tracewheel.config import DoctorSections, Limits, PolicyGradientConfig
from tracewheel.report.doctor.finding import Finding, Severity, advice, not_checked, worst
from tracewheel.report.doctor.measures import by_iteration, medians, rates, severity_above, severity_below
from tracewheel.report.doctor.run_records import RunRecords

MEAN, MAX, MEASURED, ACTION = (f"sampler_mismatch_{name}" for name in ("mean", "max", "measured", "action"))
CORRECTED = 2.0
SEVERE = 5.0


def limits_of(config: DoctorSections) -> Limits:
    """The doctor's own limits, or those derived from the learner's threshold."""
    threshold = config.learner.mismatch.threshold
    if "sampler_mismatch" in config.doctor.limits:
        return config.doctor.limit("sampler_mismatch")
    return Limits(threshold, SEVERE * threshold)


def sampler_mismatch(records: RunRecords) -> Finding:
    """The mean absolute difference, in nats, between stored log-probabilities and the trainer's before its first step.

    A warning at most where every severe update was corrected, and with a replay buffer in old records, whose figure
    still includes tokens of earlier policies.
    """
    measured = {item.number: item.metrics[MEAN] for item in records.iterations if MEAN in item.metrics}
    if not measured:
        return not_checked("sampler_mismatch", f"No update has the metric {MEAN}.")
    broken = tuple(number for number, value in measured.items() if not math.isfinite(value))
    figures = medians(
        {number: value for number, value in measured.items() if math.isfinite(value)}, records.config.doctor.window
    )
    limits = limits_of(records.config)
    severities = {number: severity_above(value, limits) for number, value in figures.items()}
    evidence = {
        "nats a token": max(figures.values(), default=math.inf),
        "largest of a token": max(records.metric(MAX).values(), default=None),
        "not finite": len(broken),
        "by_iteration": figures,
    }
    severity = "severe" if broken else worst(severities.values())
    severe = {number for number, found in severities.items() if found == "severe"}
    corrected = {number for number, action in records.metric(ACTION).items() if action == CORRECTED}
    mixed = records.replays and not records.metric(MEASURED)
    if severe and not broken and (mixed or severe <= corrected):
        severity = "warning"
    sick = tuple(sorted({*broken, *(number for number, found in severities.items() if found != "healthy")}))
    return Finding("sampler_mismatch", severity, evidence, "" if severity == "healthy" else advice("sampler_mismatch"), sick)


def stale_adapter(records: RunRecords) -> Finding:
    """Check the turns' policy versions, updates that changed no weight, and a mismatch that appears after a clean start."""
    if records.episodes.empty:
        return not_checked("stale_adapter", "No trajectories are stored.")
    late = _late_versions(records)
    unchanged = _unchanged_weights(records)
    drifted = _drifted_from_the_sampler(records)
    evidence = {
        "versions behind": max(late.values(), default=0),
        "updates that changed no weight": unchanged,
        "iterations whose sampler no longer agrees with the trainer, as it did at first": drifted,
    }
    found = tuple(sorted({*late, *unchanged, *drifted}))
    return Finding("stale_adapter", "severe" if found else "healthy", evidence, advice("stale_adapter") if found else "", found)


def _late_versions(records: RunRecords) -> dict[int, int]:
    """The lag of each iteration's oldest turn in versions, where it exceeds the profile's limit."""
    learner = records.config.learner
    allowed = max(
        (isinstance(learner, PolicyGradientConfig) and learner.off_policy.max_staleness) or 0, records.config.rollout.lag
    )
    newest = {item.number + 1: item.weights.version for item in records.iterations if item.weights}
    if records.start_version is not None:
        newest[1] = records.start_version
    oldest = records.episodes.groupby("iteration")["oldest_version"].min()
    # A run may start from a policy with a higher version than its own updates: versions count from that policy's training.
    behind = {number: newest[number] - int(version) for number, version in by_iteration(oldest).items() if number in newest}
    return {number: lag for number, lag in behind.items() if lag > allowed or (number > 1 and lag < 0)}


def _unchanged_weights(records: RunRecords) -> list[int]:
    """Updates that took steps but left the weights unchanged."""
    pairs = zip(records.iterations, records.iterations[1:], strict=False)
    return [
        after.number
        for before, after in pairs
        if before.weights
        and after.weights
        and before.weights.digest
        and before.weights.digest == after.weights.digest
        and after.metrics.get("steps", 0.0) > 0
    ]


def _drifted_from_the_sampler(records: RunRecords) -> list[int]:
    """Iterations with a mismatch after a first iteration without one: old weights under a new version."""
    limits = limits_of(records.config)
    measured = {} if records.replays else records.metric(MEAN)
    if not measured or measured[min(measured)] >= limits.warn:
        return []
    return [number for number, value in sorted(measured.items()) if value >= limits.severe]


MASTERY = 0.85  # from this success on, low entropy is a policy that knows its tasks


def entropy_collapse(records: RunRecords) -> Finding:
    """Entropy relative to the first iteration, and groups whose samples fail with identical tokens.

    A policy that solves its tasks may have low entropy: iterations whose success reaches `mastery` count as healthy.
    """
    entropy = records.metric("entropy") or _sampled_entropy(records)
    if len(entropy) < 2:
        return not_checked("entropy_collapse", "Fewer than two iterations have a measure of entropy.")
    settings, window = records.config.doctor, records.config.doctor.window
    first = entropy[min(entropy)]
    shares = {number: value / first if first > 0 else 1.0 for number, value in medians(entropy, window).items()}
    struggling = _struggling(records)
    severities: dict[int, Severity] = {
        number: severity_below(share, settings.limit("entropy")) if number in struggling else "healthy"
        for number, share in shares.items()
    }
    identical, totals = _identical_failures(records)
    stuck = {number: rate for number, rate in rates(identical, totals, window).items() if number in struggling}
    for number, rate in stuck.items():
        severities[number] = worst(
            [
                severities.get(number, "healthy"),
                severity_above(rate.value, settings.limit("zero_variance"), lower_bound=rate.low),
            ]
        )
    evidence = {
        "nats a token at the start": first,
        "lowest share of that": min(shares.values()),
        "groups of equal failures": max((rate.value for rate in stuck.values()), default=0.0),
        "by_iteration": shares,
    }
    sick = tuple(sorted(number for number, severity in severities.items() if severity != "healthy"))
    return Finding("entropy_collapse", worst(severities.values()), evidence, advice("entropy_collapse") if sick else "", sick)


def _sampled_entropy(records: RunRecords) -> dict[int, float]:
    """Minus the mean log-probability of the sampled tokens: an estimate of the entropy."""
    if records.episodes.empty:
        return {}
    sums = records.episodes.groupby("iteration")[["negative_logprob", "action_tokens"]].sum()
    sums = sums[sums["action_tokens"] > 0]
    return by_iteration(sums["negative_logprob"] / sums["action_tokens"])


def _struggling(records: RunRecords) -> set[int]:
    """Iterations whose success is below `mastery`."""
    if records.episodes.empty:
        return {item.number for item in records.iterations}
    success = by_iteration(records.episodes.groupby("iteration")["success"].mean().dropna())
    means = medians(success, records.config.doctor.window)
    return {item.number for item in records.iterations if means.get(item.number, 0.0) < MASTERY}


def _identical_failures(records: RunRecords) -> tuple[dict[int, int], dict[int, int]]:
    """By iteration, the groups that fail with identical tokens, and all groups that are not fully solved.

    Unscored episodes are no failures: they are left out.
    """
    scored = records.episodes.dropna(subset=["success"]) if not records.episodes.empty else records.episodes
    if scored.empty:
        return {}, {}
    groups = scored.groupby(["iteration", "group"]).agg(
        distinct=("sampled_hash", "nunique"), size=("sampled_hash", "size"), success=("success", "min")
    )
    open_groups = groups[(groups["size"] > 1) & ~(groups["success"] > 0)]
    counts = open_groups.assign(identical=open_groups["distinct"] == 1).groupby("iteration")["identical"].agg(["sum", "size"])
    identical, totals = by_iteration(counts["sum"]), by_iteration(counts["size"])
    return {number: int(count) for number, count in identical.items()}, {number: int(count) for number, count in totals.items()}


# Smaller than the rounding error of float32 over a sum of tokens: the policies are equal.
NO_KL = 1e-10


def kl_explosion(records: RunRecords) -> Finding:
    """KL to the reference, and within an update to the behaviour policy, in nats per token."""
    settings = records.config.doctor
    # Without a weight no reference is computed, and the metric is 0 whatever the policy does.
    learner = records.config.learner
    weighted = not isinstance(learner, PolicyGradientConfig) or learner.kl.weight > 0
    measured = {"kl": records.metric("kl") if weighted else {}, "behaviour_kl": records.metric("behaviour_kl")}
    if not any(measured.values()):
        return not_checked("kl_explosion", "No update has the metrics kl or behaviour_kl.")
    figures = {name: medians(values, records.config.doctor.window) for name, values in measured.items() if values}
    severities = {
        (name, number): severity_above(value, settings.limit("kl"))
        for name, values in figures.items()
        for number, value in values.items()
    }
    evidence: dict[str, Any] = {f"{name}, nats a token": max(values.values()) for name, values in figures.items()}
    evidence["by_iteration"] = figures.get("kl") or figures["behaviour_kl"]
    sick = tuple(sorted({number for (_, number), severity in severities.items() if severity != "healthy"}))
    if sick:
        return Finding("kl_explosion", worst(severities.values()), evidence, advice("kl_explosion.away"), sick)
    steps = records.metric("steps")
    still = tuple(number for number, value in measured["kl"].items() if number > 1 and abs(value) < NO_KL and steps.get(number))
    if still and len(still) == len([number for number in measured["kl"] if number > 1]):
        return Finding("kl_explosion", "warning", evidence, advice("kl_explosion.frozen"), still)
    return Finding("kl_explosion", "healthy", evidence)


def guard(records: RunRecords) -> Finding:
    """What the guard in the loop did: severe where it stopped the loop, a warning where it went back."""
    if records.guard is None:
        return not_checked("guard", "The loop ran without a guard (guard.enabled), or with an earlier version.")
    evidence = {"alarms": len(records.guard), "events": [str(event["sentence"]) for event in records.guard]}
    if not records.guard:
        return Finding("guard", "healthy", {"alarms": 0})
    iterations = tuple(int(event["iteration"]) for event in records.guard)
    stopped = any(event["action"] == "stop" for event in records.guard)
    return Finding(
        "guard",
        "severe" if stopped else "warning",
        evidence,
        advice(f"guard.{'stopped' if stopped else 'went_back'}"),
        iterations,
    )
