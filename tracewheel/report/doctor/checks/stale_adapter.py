"""Stale adapter: rollouts were sampled by an older policy than the one being trained."""

from __future__ import annotations

from tracewheel.config import PolicyGradientConfig
from tracewheel.report.doctor.checks.sampler_mismatch import MEAN, limits_of
from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.run_records import RunRecords
from tracewheel.report.doctor.windows import by_iteration

NAME = "stale_adapter"
ADVICE = (
    "Episodes were sampled by an older policy than the one that the last update left. Check that the engine loads the new "
    "adapter and drops what it cached, or allow the lag with learner.off_policy.max_staleness."
)


def stale_adapter(records: RunRecords) -> Finding:
    """Check the turns' policy versions, updates that changed no weight, and a mismatch that appears after a clean start."""
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
