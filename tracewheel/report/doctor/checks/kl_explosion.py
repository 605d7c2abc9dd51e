"""KL explosion: the policy runs away from the reference or from what sampled; or it does not move at all."""

from __future__ import annotations

from typing import Any

from tracewheel.config import PolicyGradientConfig
from tracewheel.report.doctor.figures import medians, too_high
from tracewheel.report.doctor.finding import Finding, not_checked, worst
from tracewheel.report.doctor.records import RunRecords

NAME = "kl_explosion"
AWAY = (
    "The policy leaves the reference fast; language and skills that the reward does not see go first. Lower "
    "learner.learning_rate or learner.epochs, raise learner.kl.weight or give it a target, and go back to the last "
    "good candidate."
)
FROZEN = (
    "Steps are taken, yet the policy stays exactly at the reference. See that the trained weights are those that are "
    "saved and served, and that the learning rate is not 0."
)
# Below the rounding of float32 over a sum of tokens, two policies are one.
NOTHING = 1e-10


def kl_explosion(records: RunRecords) -> Finding:
    """Divergence from the reference, and within an update from the behaviour policy, in nats a token."""
    settings = records.config.doctor
    # Without a weight no reference is computed, and a divergence of 0 says nothing.
    learner = records.config.learner
    weighted = not isinstance(learner, PolicyGradientConfig) or learner.kl.weight > 0
    measured = {"kl": records.metric("kl") if weighted else {}, "behaviour_kl": records.metric("behaviour_kl")}
    if not any(measured.values()):
        return not_checked(NAME, "No update has the metrics kl or behaviour_kl.")
    figures = {name: medians(values, settings.window) for name, values in measured.items() if values}
    severities = {
        (name, number): too_high(value, settings.kl) for name, values in figures.items() for number, value in values.items()
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
