"""The sampler and the trainer give the same token different log-probabilities: off-policy without knowing it."""

from __future__ import annotations

import math

from tracewheel.doctor.figures import medians, too_high
from tracewheel.doctor.finding import Finding, not_checked, worst
from tracewheel.doctor.records import RunRecords

NAME = "sampler_mismatch"
MEAN, MAX = "sampler_mismatch_mean", "sampler_mismatch_max"
ADVICE = (
    "What sampled the tokens is not the model that learns from them: other weights, another precision, another "
    "temperature or a kernel that differs. Compare both on one prompt; until it is mended, "
    "learner.off_policy.proximal: recompute with a correction bounds the harm."
)


def sampler_mismatch(records: RunRecords) -> Finding:
    """The mean distance, in nats, of stored log-probabilities from the trainer's before it takes a step.

    Rows of a replay buffer were sampled by earlier policies, so with one it is a warning at most.
    """
    measured = {item.number: item.metrics[MEAN] for item in records.iterations if MEAN in item.metrics}
    if not measured:
        return not_checked(NAME, f"No update has the metric {MEAN}.")
    broken = tuple(number for number, value in measured.items() if not math.isfinite(value))
    figures = medians(
        {number: value for number, value in measured.items() if math.isfinite(value)}, records.config.doctor.window
    )
    severities = {number: too_high(value, records.config.doctor.sampler_mismatch) for number, value in figures.items()}
    evidence = {
        "nats a token": max(figures.values(), default=math.inf),
        "largest of a token": max(records.metric(MAX).values(), default=None),
        "not finite": len(broken),
        "by_iteration": figures,
    }
    severity = "severe" if broken else worst(severities.values())
    if severity == "severe" and not broken and records.replays:
        severity = "warning"
    sick = tuple(sorted({*broken, *(number for number, found in severities.items() if found != "healthy")}))
    return Finding(NAME, severity, evidence, "" if severity == "healthy" else ADVICE, sick)
