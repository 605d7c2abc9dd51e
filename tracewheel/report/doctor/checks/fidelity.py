"""Fidelity: programs' episodes that are not trained on as they were played."""

from __future__ import annotations

from tracewheel.evaluation.gate import MIN_FIDELITY
from tracewheel.report.doctor.finding import Finding, not_checked
from tracewheel.report.doctor.run_records import RunRecords

NAME = "fidelity"
MANY = 0.1  # share of requests with assistant messages that the policy did not say, from which on it is a warning
ADVICE = (
    "Tokens that the policy sampled for its programs are not trained on, or the learner computes other log-probabilities for "
    "them. Episodes without a score and answers that nobody waited for (`lost_tokens`) cost the first share, another model or "
    "precision the second; the gate refuses such a run."
)
EDITS = (
    "Programs send back assistant messages that the policy did not say. What they wrote is read, but not trained on; let them "
    "send replies back as they came, thinking and ids of calls too."
)


def fidelity(records: RunRecords) -> Finding:
    """An update below `MIN_FIDELITY`, or many requests that no turn of the policy matches."""
    measured = records.metric("fidelity")
    if not measured:
        return not_checked(NAME, "No program played the episodes.")
    asked, unmatched = records.metric("requests"), records.metric("requests_unmatched")
    shares = {number: unmatched.get(number, 0.0) / count for number, count in asked.items() if count}
    evidence = {
        "least": min(measured.values()),
        "asked for": MIN_FIDELITY,
        "lost tokens": int(sum(records.metric("lost_tokens").values())),
        "unmatched requests": int(sum(unmatched.values())),
        "by_iteration": measured,
    }
    low = tuple(number for number, value in measured.items() if value < MIN_FIDELITY)
    edited = tuple(number for number, share in shares.items() if share >= MANY)
    if low:
        return Finding(NAME, "severe", evidence, ADVICE, low)
    return Finding(NAME, "warning", evidence, EDITS, edited) if edited else Finding(NAME, "healthy", evidence)
