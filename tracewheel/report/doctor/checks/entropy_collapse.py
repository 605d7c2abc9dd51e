"""Entropy collapse: the policy always says the same before it has learned what to say."""

from __future__ import annotations

from tracewheel.report.doctor.figures import by_iteration, medians, rates, too_high, too_low
from tracewheel.report.doctor.finding import Finding, Severity, not_checked, worst
from tracewheel.report.doctor.records import RunRecords

NAME = "entropy_collapse"
ADVICE = (
    "The policy hardly varies any more while it still fails: nothing new will be found. Raise learner.entropy.bonus "
    "or set learner.entropy.floor, raise rollout.temperature, clip higher (kind: dapo), lower the learning rate, or "
    "go back to an earlier candidate."
)


def entropy_collapse(records: RunRecords) -> Finding:
    """Entropy as a share of the start's, and groups whose samples are all the same words without success.

    A policy that solves what it is given may be sure of itself: iterations with success of at least
    `mastery` are left alone.
    """
    entropy = records.metric("entropy") or _surprise(records)
    if len(entropy) < 2:
        return not_checked(NAME, "Fewer than two iterations say how the entropy is.")
    settings = records.config.doctor
    first = entropy[min(entropy)]
    shares = {number: value / first if first > 0 else 1.0 for number, value in medians(entropy, settings.window).items()}
    struggling = _struggling(records)
    severities: dict[int, Severity] = {
        number: too_low(share, settings.entropy) if number in struggling else "healthy" for number, share in shares.items()
    }
    same, of = _same_words(records)
    stuck = {number: rate for number, rate in rates(same, of, settings.window).items() if number in struggling}
    for number, rate in stuck.items():
        severities[number] = worst(
            [severities.get(number, "healthy"), too_high(rate.value, settings.zero_variance, surely=rate.low)]
        )
    evidence = {
        "nats a token at the start": first,
        "lowest share of that": min(shares.values()),
        "groups of equal failures": max((rate.value for rate in stuck.values()), default=0.0),
        "by_iteration": shares,
    }
    sick = tuple(sorted(number for number, severity in severities.items() if severity != "healthy"))
    return Finding(NAME, worst(severities.values()), evidence, ADVICE if sick else "", sick)


def _surprise(records: RunRecords) -> dict[int, float]:
    """Minus the mean log-probability of the sampled tokens, which is their entropy in expectation."""
    if records.episodes.empty:
        return {}
    sums = records.episodes.groupby("iteration")[["surprise", "action_tokens"]].sum()
    sums = sums[sums["action_tokens"] > 0]
    return by_iteration(sums["surprise"] / sums["action_tokens"])


def _struggling(records: RunRecords) -> set[int]:
    """Iterations with room for improvement."""
    if records.episodes.empty:
        return {item.number for item in records.iterations}
    success = by_iteration(records.episodes.groupby("iteration")["success"].mean().dropna())
    means = medians(success, records.config.doctor.window)
    return {item.number for item in records.iterations if means.get(item.number, 0.0) < records.config.doctor.mastery}


def _same_words(records: RunRecords) -> tuple[dict[int, int], dict[int, int]]:
    """Groups whose samples are equal token by token and fail, and all groups that do not succeed throughout, by iteration."""
    if records.episodes.empty:
        return {}, {}
    groups = records.episodes.groupby(["iteration", "group"]).agg(
        texts=("spoken", "nunique"), size=("spoken", "size"), success=("success", "min")
    )
    open_groups = groups[(groups["size"] > 1) & ~(groups["success"] > 0)]
    counts = open_groups.assign(same=open_groups["texts"] == 1).groupby("iteration")["same"].agg(["sum", "size"])
    same, of = by_iteration(counts["sum"]), by_iteration(counts["size"])
    return {number: int(count) for number, count in same.items()}, {number: int(count) for number, count in of.items()}
