"""KL explosion: the policy moves far from the reference or from the behaviour policy, or does not move at all."""

from __future__ import annotations

from typing import Any

from tracewheel.config import PolicyGradientConfig
from tracewheel.report.doctor.finding import Finding, not_checked, worst
from tracewheel.report.doctor.limits import severity_above
from tracewheel.report.doctor.run_records import RunRecords
from tracewheel.report.doctor.windows import medians

NAME = "kl_explosion"
AWAY = (
    "The policy moves away from the reference fast, and loses first what the reward does not measure. Lower "
    "learner.learning_rate or learner.epochs, raise learner.kl.weight or give it a target, and return to the last "
    "good candidate."
)
FROZEN = (
    "The optimiser takes steps, yet the policy stays exactly at the reference. Check that the trained weights are the "
    "ones that are saved and served, and that the learning rate is not 0."
)
# Smaller than the rounding error of float32 over a sum of tokens: the policies are equal.
NOTHING = 1e-10


def kl_explosion(records: RunRecords) -> Finding:
    """KL to the reference, and within an update to the behaviour policy, in nats per token."""
    settings = records.config.doctor
    # Without a weight no reference is computed, and the metric is 0 whatever the policy does.
    learner = records.config.learner
    weighted = not isinstance(learner, PolicyGradientConfig) or learner.kl.weight > 0
    measured = {"kl": records.metric("kl") if weighted else {}, "behaviour_kl": records.metric("behaviour_kl")}
    if not any(measured.values()):
        return not_checked(NAME, "No update has the metrics kl or behaviour_kl.")
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
        return Finding(NAME, worst(severities.values()), evidence, AWAY, sick)
    steps = records.metric("steps")
    still = tuple(
        number for number, value in measured["kl"].items() if number > 1 and abs(value) < NOTHING and steps.get(number)
    )
    if still and len(still) == len([number for number in measured["kl"] if number > 1]):
        return Finding(NAME, "warning", evidence, FROZEN, still)
    return Finding(NAME, "healthy", evidence)
