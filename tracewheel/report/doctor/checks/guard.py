"""The guard: alarms in the loop, and what was done about them."""

from __future__ import annotations

from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.run_records import RunRecords

NAME = "guard"
WENT_BACK = (
    "The policy fell apart, and the loop went back to its best iteration with a lower learning rate. Start the next run with "
    "that rate, or with learner.learning_rate: auto."
)
STOPPED = (
    "The policy fell apart again after every attempt at a lower learning rate, so the loop stopped; the best candidate before "
    "counts. Lower learner.learning_rate, give learner.kl more weight, or look at the rewards of the last iterations."
)


def guard(records: RunRecords) -> Finding:
    """What the guard in the loop did: severe where it stopped the loop, a warning where it went back."""
    if records.guard is None:
        return not_checked(NAME, "The loop ran without a guard (guard.enabled), or with an earlier version.")
    evidence = {"alarms": len(records.guard), "events": [str(event["sentence"]) for event in records.guard]}
    if not records.guard:
        return Finding(NAME, "healthy", {"alarms": 0})
    iterations = tuple(int(event["iteration"]) for event in records.guard)
    stopped = any(event["action"] == "stop" for event in records.guard)
    return Finding(NAME, "severe" if stopped else "warning", evidence, STOPPED if stopped else WENT_BACK, iterations)
