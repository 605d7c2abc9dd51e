"""The response to a mismatch of sampler and trainer: nothing, a warning, a correction, or a stop."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tracewheel.config import MismatchConfig, OffPolicyConfig
from tracewheel.core.errors import SamplerMismatchError
from tracewheel.learner.mismatch_statistics import MAX, MEAN, MEASURED

ACTION = "sampler_mismatch_action"
# The action as a metric, because metrics are numbers.
NONE, WARNED, CORRECTED = 0.0, 1.0, 2.0
ADVICE = (
    "What sampled these tokens is not the model that learns from them. Look at the engine: rollout.engine.kind and its "
    "precision (policy.dtype; for vLLM also the type of its KV cache), whether it serves the adapter of this version, "
    "rollout.temperature, and, for a server, that it gives log-probabilities after the temperature (vLLM: "
    "--logprobs-mode processed_logprobs)."
)


def act_on(config: MismatchConfig, figures: Mapping[str, float]) -> dict[str, float]:
    """The action taken, as a metric; empty when nothing was measured.

    Raises:
        SamplerMismatchError: the difference is above the threshold and the profile says to stop, or to correct
            what is not finite.
    """
    if MEAN not in figures:
        return {}
    mean = figures[MEAN]
    if mean <= config.threshold:
        return {ACTION: NONE}
    if config.action == "stop" or (config.action == "correct" and not math.isfinite(mean)):
        raise SamplerMismatchError(f"{_measured(figures, config.threshold)} {ADVICE} Nothing of this update is written.")
    return {ACTION: CORRECTED if config.action == "correct" else WARNED}


def corrected(config: OffPolicyConfig) -> OffPolicyConfig:
    """The off-policy settings of a corrected update: the profile's own if they already correct."""
    if config.correction != "none":
        return config
    return config.model_copy(update={"proximal": "recompute", "correction": "truncate"})


def mismatch_warning(config: MismatchConfig, metrics: Mapping[str, float]) -> str:
    """The warning for the user after an update; empty when there is none."""
    action = metrics.get(ACTION, NONE)
    if action == NONE:
        return ""
    response = ""
    if action == CORRECTED:
        share = metrics.get("corrected_share", math.nan)
        response = (
            "This update's ratios are to the trainer's log-probabilities, "
            f"with importance weights on {share:.1%} of its tokens. "
        )
    return f"warning: {_measured(metrics, config.threshold)} {response}{ADVICE}"


def _measured(figures: Mapping[str, float], threshold: float) -> str:
    return (
        f"sampler and trainer disagree by {figures[MEAN]:.3g} nats a token on average, {figures[MAX]:.3g} at most, over "
        f"{figures[MEASURED]:.1%} of the tokens (those that the updated policy sampled); "
        f"learner.mismatch.threshold is {threshold:g}."
    )
