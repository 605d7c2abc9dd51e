"""The mismatch of sampler and trainer: how far apart their log-probabilities are, and the response to it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

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
from tracewheel.learner.batch import Batch
from tracewheel.learner.losses.ratios import bounded
from tracewheel.learner.trajectory_table import TrajectoryTable

MEAN, MAX, TRIMMED, SAMPLE, MEASURED = (
    f"sampler_mismatch_{name}" for name in ("mean", "max", "trimmed", "effective_sample", "measured")
)
TRIM = 0.01


@dataclass
class MismatchStatistics:
    """Differences of fresh and stored log-probabilities, in nats, on tokens that the updated policy sampled.

    `log_ratios` holds trainer less sampler, on `actions` action tokens or fewer. Statistics of processes add up.
    """

    log_ratios: list[Tensor] = field(default_factory=list)
    actions: int = 0

    def __add__(self, other: MismatchStatistics) -> MismatchStatistics:
        return MismatchStatistics(self.log_ratios + other.log_ratios, self.actions + other.actions)

    def observe(self, logprobs: Tensor, stored: Tensor, mask: Tensor, current: Tensor) -> None:
        """Add tokens.

        Args:
            logprobs, stored: Any shape; the trainer's and the sampler's log-probabilities.
            mask: The same shape; 1 where a policy sampled the token.
            current: The same shape; 1 where the updated policy, as it was before the first step, sampled it.
        """
        acted = mask.bool()
        self.actions += int(acted.sum())
        self.log_ratios.append((logprobs - stored)[acted & current.bool()].float().cpu())

    def observe_batch(self, logprobs: Tensor, batch: Batch, current: Tensor) -> None:
        """Add a batch [B, T]."""
        self.observe(logprobs, batch.behaviour_logprobs, batch.action_mask, current)

    def figures(self) -> dict[str, float]:
        """The figures of the tokens compared, and their share of the action tokens; that share alone when it is 0.

        `mean` and `max` are of the absolute differences. `trimmed` is their mean without the largest 1%, at least one
        token: a single token cannot move it. `effective_sample` is (sum w)^2 / (n sum w^2) of the tokens' ratios w, trainer
        over sampler (Kish 1965): the share of the tokens that would say as much without the mismatch.
        """
        log_ratios = torch.cat([torch.zeros(0), *self.log_ratios]).double()
        measured = len(log_ratios)
        share = {MEASURED: measured / max(self.actions, 1)}
        if not measured:
            return share
        gaps = log_ratios.abs().sort().values  # NaN is last
        kept = gaps[: max(1, measured - max(1, math.ceil(TRIM * measured)))]
        weights = bounded(log_ratios).exp()
        return {
            MEAN: gaps.mean().item(),
            MAX: gaps[-1].item(),
            TRIMMED: kept.mean().item(),
            SAMPLE: (weights.sum().square() / (measured * weights.square().sum())).item(),
            **share,
        }


def mismatch_of(table: TrajectoryTable) -> MismatchStatistics:
    """The statistics of all rows, which have `proximal` and `current`; every process gets the same."""
    found = MismatchStatistics()
    columns = zip(
        table.frame["logprobs"],
        table.frame["action_mask"],
        table.per_token["proximal"],
        table.per_token["current"],
        strict=True,
    )
    for logprobs, mask, proximal, current in columns:
        if len(proximal):  # a row without actions was in no pass
            stored = torch.tensor(list(logprobs), dtype=torch.float32)
            found.observe(proximal[: len(stored)], stored, torch.tensor(list(mask)), current)
    return found


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
