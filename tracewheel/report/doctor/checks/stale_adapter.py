"""An old adapter was served: rollouts come from a policy that is no longer the one being trained."""

from __future__ import annotations

from tracewheel.config import PolicyGradientConfig
from tracewheel.report.doctor.checks.sampler_mismatch import MEAN, limits_of
from tracewheel.report.doctor.figures import by_iteration
from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.records import RunRecords

NAME = "stale_adapter"
ADVICE = (
    "Episodes were sampled by an older policy than the last update left. Look at how the engine is given its adapter: "
    "that it loads the new one and drops what it cached, or allow for the lag with learner.off_policy.max_staleness."
)


def stale_adapter(records: RunRecords) -> Finding:
    """Look at the turns' policy versions, at updates that changed nothing, and for a mismatch after a clean start."""
    if records.episodes.empty:
        return not_checked(NAME, "No trajectories are stored.")
    late = _late_versions(records)
    unchanged = _unchanged_weights(records)
    drifted = _drifted_from_the_sampler(records)
    evidence = {
        "versions behind": max(late.values(), default=0),
        "updates that changed no weight": unchanged,
        "iterations whose sampler no longer agrees with the trainer, as it did at first": drifted,
    }
    found = tuple(sorted({*late, *unchanged, *drifted}))
    return Finding(NAME, "severe" if found else "healthy", evidence, ADVICE if found else "", found)


def _late_versions(records: RunRecords) -> dict[int, int]:
    """By how many versions an iteration's oldest turn is behind, where that is more than the profile allows."""
    learner = records.config.learner
    allowed = max(
        (isinstance(learner, PolicyGradientConfig) and learner.off_policy.max_staleness) or 0, records.config.rollout.lag
    )
    newest = {item.number + 1: item.weights.version for item in records.iterations if item.weights}
    if records.start_version is not None:
        newest[1] = records.start_version
    oldest = records.episodes.groupby("iteration")["oldest_version"].min()
    # The first policy of a run may carry a higher number than the ones that follow: it counts from where it was trained.
    behind = {number: newest[number] - int(version) for number, version in by_iteration(oldest).items() if number in newest}
    return {number: lag for number, lag in behind.items() if lag > allowed or (number > 1 and lag < 0)}


def _unchanged_weights(records: RunRecords) -> list[int]:
    """Updates that took steps and left the weights of the update before."""
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
    """Iterations whose log-probabilities are off though those of the first were right: old weights under a new number."""
    limits = limits_of(records.config)
    measured = {} if records.replays else records.metric(MEAN)
    if not measured or measured[min(measured)] >= limits.warn:
        return []
    return [number for number, value in sorted(measured.items()) if value >= limits.severe]
