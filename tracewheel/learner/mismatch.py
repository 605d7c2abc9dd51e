"""The response to a mismatch of sampler and trainer: nothing, a warning, a correction, or a stop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from tracewheel.config import (
    ClipConfig,
    GspoConfig,
    MismatchConfig,
    OffPolicyConfig,
    PolicyGradientConfig,
    SurrogateConfig,
    UpdateSections,
)
from tracewheel.core.errors import SamplerMismatchError
from tracewheel.learner.mismatch_statistics import MAX, MEAN, MEASURED, TRIMMED

ANOTHER_MODEL = 1.0  # nats a token: more is another model than the one that is trained
ACTION = "sampler_mismatch_action"
# The action as a metric, because metrics are numbers.
NONE, WARNED, CORRECTED = 0.0, 1.0, 2.0
DUAL_CLIP = 3.0
ADVICE = (
    "What sampled these tokens is not the model that learns from them. Look at the engine: rollout.engine.kind and its "
    "precision (policy.dtype; for vLLM also the type of its KV cache), whether it serves the adapter of this version, "
    "rollout.temperature, and, for a server, that it gives log-probabilities after the temperature (vLLM: "
    "--logprobs-mode processed_logprobs)."
)


def resolved(config: UpdateSections) -> MismatchConfig:
    """The profile's settings with the action that `auto` stands for.

    The transformers engine's log-probabilities are the trainer's to rounding. Imitation weighs no token by its sampler,
    and DPO's loss has no ratio.
    """
    mismatch, learner = config.learner.mismatch, config.learner
    if mismatch.action != "auto":
        return mismatch
    correctable = isinstance(learner, PolicyGradientConfig) and learner.advantage.kind != "success"
    action: Literal["correct", "warn"] = "correct" if correctable and not config.own_sampler else "warn"
    return mismatch.model_copy(update={"action": action})


def act_on(config: MismatchConfig, figures: Mapping[str, float]) -> dict[str, float]:
    """The action taken, as a metric; empty when nothing was measured and nothing is corrected.

    Args:
        config: With an action other than `auto` (see `resolved`).
        figures: Of `MismatchStatistics`.

    Raises:
        SamplerMismatchError: the differences without the largest are above the threshold and the profile says to
            stop; or, with a correction, they are those of another model, or not finite.
    """
    corrects = config.action == "correct"
    if MEAN not in figures:
        return {ACTION: CORRECTED} if corrects else {}
    limit = {"stop": config.threshold, "correct": ANOTHER_MODEL}.get(config.action, math.inf)
    # Written so that NaN stops too.
    if config.action != "warn" and not figures[TRIMMED] <= limit:
        name = "threshold" if config.action == "stop" else "what another model shows"
        raise SamplerMismatchError(f"{_measured(figures, name, limit)} {ADVICE} Nothing of this update is written.")
    if corrects:
        return {ACTION: CORRECTED}
    return {ACTION: NONE if figures[MEAN] <= config.threshold else WARNED}


def corrected(config: OffPolicyConfig) -> OffPolicyConfig:
    """The off-policy settings of a corrected update: the profile's own if they already correct."""
    if config.correction != "none":
        return config
    return config.model_copy(update={"proximal": "recompute", "correction": "truncate"})


def with_dual_clip(config: SurrogateConfig) -> SurrogateConfig:
    """The surrogate of a corrected update: with the dual clip, where the profile leaves it to us."""
    if isinstance(config, ClipConfig | GspoConfig) and config.dual == "auto":
        return config.model_copy(update={"dual": DUAL_CLIP})
    return config


def mismatch_warning(config: MismatchConfig, metrics: Mapping[str, float]) -> str:
    """The warning for the user after an update whose mean difference is above the threshold; else empty."""
    action = metrics.get(ACTION, NONE)
    if action == NONE or metrics.get(MEAN, 0.0) <= config.threshold:
        return ""
    response = ""
    if action == CORRECTED:
        share = metrics.get("corrected_share", math.nan)
        response = (
            "This update's ratios are to the trainer's log-probabilities, "
            f"with importance weights on {share:.1%} of its tokens. "
        )
    return f"warning: {_measured(metrics, 'threshold', config.threshold)} {response}{ADVICE}"


def _measured(figures: Mapping[str, float], name: str, limit: float) -> str:
    trimmed = f" ({figures[TRIMMED]:.3g} without the largest 1%)" if TRIMMED in figures else ""
    return (
        f"sampler and trainer disagree by {figures[MEAN]:.3g} nats a token on average{trimmed}, {figures[MAX]:.3g} at most, "
        f"over {figures[MEASURED]:.1%} of the tokens (those that the updated policy sampled); "
        f"learner.mismatch.{name} is {limit:g}."
    )
