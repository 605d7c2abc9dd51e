"""Entropy collapse: the policy stops exploring before it solves its tasks."""

from __future__ import annotations

from tracewheel.report.doctor.finding import Finding, Severity, not_checked, worst
from tracewheel.report.doctor.limits import severity_above, severity_below
from tracewheel.report.doctor.run_records import RunRecords
from tracewheel.report.doctor.windows import by_iteration, medians, rates

MASTERY = 0.85  # from this success on, low entropy is a policy that knows its tasks
NAME = "entropy_collapse"
ADVICE = (
    "The policy hardly varies while it still fails, so it will not find anything new. Raise learner.entropy.bonus "
    "or set learner.entropy.floor, raise rollout.temperature, clip higher (kind: dapo), lower the learning rate, or "
    "go back to an earlier candidate."
)


def entropy_collapse(records: RunRecords) -> Finding:
    """Entropy relative to the first iteration, and groups whose samples fail with identical tokens.

    A policy that solves its tasks may have low entropy: iterations whose success reaches `mastery` count as healthy.
    """
    entropy = records.metric("entropy") or _sampled_entropy(records)
    if len(entropy) < 2:
        return not_checked(NAME, "Fewer than two iterations have a measure of entropy.")
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
    return Finding(NAME, worst(severities.values()), evidence, ADVICE if sick else "", sick)


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
