"""Sampler mismatch: sampler and trainer give the same token different log-probabilities."""

from __future__ import annotations

import math

from tracewheel.config import DoctorSections, Limits
from tracewheel.report.doctor.finding import Finding, not_checked, worst
from tracewheel.report.doctor.limits import severity_above
from tracewheel.report.doctor.run_records import RunRecords
from tracewheel.report.doctor.windows import medians

NAME = "sampler_mismatch"
MEAN, MAX, MEASURED, ACTION = (f"sampler_mismatch_{name}" for name in ("mean", "max", "measured", "action"))
CORRECTED = 2.0
SEVERE = 5.0
ADVICE = (
    "The model that sampled the tokens differs from the one that learns from them: in weights, precision, temperature or "
    "a kernel. Compare both on one prompt; until it is fixed, learner.mismatch.action: correct (the default for vLLM) limits "
    "the harm."
)


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
        return not_checked(NAME, f"No update has the metric {MEAN}.")
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
    return Finding(NAME, severity, evidence, "" if severity == "healthy" else ADVICE, sick)
