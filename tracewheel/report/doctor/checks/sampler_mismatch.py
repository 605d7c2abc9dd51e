"""The sampler and the trainer give the same token different log-probabilities: off-policy without knowing it."""

from __future__ import annotations

import math

from tracewheel.config import Ceiling, RetrainConfig
from tracewheel.report.doctor.figures import medians, too_high
from tracewheel.report.doctor.finding import Finding, not_checked, worst
from tracewheel.report.doctor.records import RunRecords

NAME = "sampler_mismatch"
MEAN, MAX, MEASURED, ACTION = (f"sampler_mismatch_{name}" for name in ("mean", "max", "measured", "action"))
CORRECTED = 2.0
SEVERE = 5.0
ADVICE = (
    "What sampled the tokens is not the model that learns from them: other weights, another precision, another "
    "temperature or a kernel that differs. Compare both on one prompt; until it is mended, "
    "learner.mismatch.action: correct bounds the harm."
)


def limits_of(config: RetrainConfig) -> Ceiling:
    """The doctor's own limits, or those that follow from what the learner calls a mismatch."""
    threshold = config.learner.mismatch.threshold
    return config.doctor.sampler_mismatch or Ceiling(warn=threshold, severe=SEVERE * threshold)


def sampler_mismatch(records: RunRecords) -> Finding:
    """The mean distance, in nats, of stored log-probabilities from the trainer's before it takes a step.

    Where every update was corrected for it, it is a warning at most. So it is with a replay buffer in records of
    before tokens of earlier policies were left out of the figure.
    """
    measured = {item.number: item.metrics[MEAN] for item in records.iterations if MEAN in item.metrics}
    if not measured:
        return not_checked(NAME, f"No update has the metric {MEAN}.")
    broken = tuple(number for number, value in measured.items() if not math.isfinite(value))
    figures = medians(
        {number: value for number, value in measured.items() if math.isfinite(value)}, records.config.doctor.window
    )
    limits = limits_of(records.config)
    severities = {number: too_high(value, limits) for number, value in figures.items()}
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
    return Finding(NAME, severity, evidence, "" if severity == "healthy" else ADVICE, sick)
