"""How rewards become advantages, and algorithms by name: presets of the choices in `PolicyGradientConfig`.

A preset lists only what differs from the defaults. The profile `learner: {kind: dapo, surrogate: {high: 0.3}}` is DAPO
with one choice changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator

from tracewheel.config.base import Count, GivenKind, Positive, Share, Strict
from tracewheel.core.kind_table import OWN_CLASS


class ComparingAdvantageConfig(Strict):
    """An advantage that compares the rewards of trajectories, so that it can compare those of turns as well.

    Its function takes rewards [N], groups [N] and the settings of its kind, and returns advantages [N].
    """


class GroupAdvantageConfig(ComparingAdvantageConfig):
    """Reward minus the group's mean, divided by the group's standard deviation if `scale`."""

    kind: Literal["group"] = "group"
    scale: bool = True


class LeaveOneOutAdvantageConfig(ComparingAdvantageConfig):
    """Reward minus the mean of the group's other samples."""

    kind: Literal["leave_one_out"] = "leave_one_out"


class BatchAdvantageConfig(ComparingAdvantageConfig):
    """Reward minus the mean of the group or of the whole batch, divided by the batch's standard deviation."""

    kind: Literal["batch"] = "batch"
    center: Literal["group", "batch"] = "group"


class DomainAdvantageConfig(Strict):
    """Reward minus the group's mean, divided by the standard deviation of its domain: for training on several worlds at once.

    A domain is an environment kind or a task family (`by`). With `weight: equal` every domain of a batch weighs the same in
    the loss, however many episodes or tokens it has; an advantage is multiplied by 4 at most for that.
    """

    kind: Literal["domain"] = "domain"
    by: Literal["environment", "family"] = "environment"
    weight: Literal["rows", "equal"] = "rows"


class GreedyBaselineAdvantageConfig(Strict):
    """Reward minus that of the same policy's greedy episode of the task (ReMax, Li et al. 2023).

    Each task is played once more for it. That episode counts in `training.episodes`, and nothing is trained on it.
    """

    kind: Literal["greedy_baseline"] = "greedy_baseline"


class SuccessAdvantageConfig(Strict):
    """1 for a reward of at least `threshold`, process rewards not counted; other samples are dropped."""

    kind: Literal["success"] = "success"
    threshold: Share = 1.0


class TeacherAdvantageConfig(Strict):
    """Per token: the teacher's log-probability minus the policy's.

    The teacher is a local adapter, a local model or both, with the policy's tokenizer.
    """

    kind: Literal["teacher"] = "teacher"
    base: str | None = None
    adapter: str | None = None


class CriticConfig(Strict):
    """The value function. `trunk`: a LoRA adapter of its own and a linear head on the policy's base.

    `light`: a two-layer network on the frozen base's hidden states. The first `warmup_iterations` train the critic alone,
    on the starting policy's episodes, for `warmup_epochs` epochs each (default: `epochs`). `clip` bounds how far a value
    may move from the one that its advantages were computed with.
    """

    kind: Literal["trunk", "light"] = "trunk"
    learning_rate: Positive = 1e-3
    epochs: Count = 2
    warmup_iterations: Annotated[int, Field(ge=0)] = 1
    warmup_epochs: Count | None = None
    clip: Positive | None = 0.2


class GaeAdvantageConfig(Strict):
    """Generalised advantage estimation over the actions of a trajectory; observations are skipped.

    `token`: each token is an action; `gamma` and `lam` apply from token to token, `turn_gamma` and `turn_lam` from the
    last token of a turn to the first of the next. `turn`: each turn is one action.

    VAPO (Yue et al. 2025): `lam_critic` is the lambda of the critic's returns, everywhere (default: that of the advantages);
    with `length_alpha` that of the advantages is 1 - 1 / (`length_alpha` l) everywhere, at least 0, where l counts the
    actions of the trajectory, not its observations.
    """

    kind: Literal["gae"] = "gae"
    granularity: Literal["token", "turn"] = "token"
    gamma: Share = 1.0
    lam: Share = 1.0
    turn_gamma: Share = 1.0
    turn_lam: Share = 0.95
    lam_critic: Share | None = None
    length_alpha: Positive | None = None
    critic: CriticConfig = CriticConfig()


class OwnAdvantageConfig(GivenKind, ComparingAdvantageConfig):
    """A function of your own, `module:name`: (rewards [N], groups [N], **args) -> advantages [N], 0 where the reward is NaN."""

    kind: Annotated[str, Field(pattern=rf"^{OWN_CLASS.pattern}$")]


_Shipped = Annotated[
    GroupAdvantageConfig
    | LeaveOneOutAdvantageConfig
    | BatchAdvantageConfig
    | DomainAdvantageConfig
    | GreedyBaselineAdvantageConfig
    | SuccessAdvantageConfig
    | TeacherAdvantageConfig
    | GaeAdvantageConfig,
    Field(discriminator="kind"),
]


def _whose(values: Any) -> str:
    kind = values.get("kind") if isinstance(values, Mapping) else getattr(values, "kind", None)
    return "own" if ":" in str(kind) else "shipped"


AdvantageConfig = Annotated[
    Annotated[_Shipped, Tag("shipped")] | Annotated[OwnAdvantageConfig, Tag("own")], Discriminator(_whose)
]


PRESETS: dict[str, dict[str, Any]] = {
    # Shao et al. 2024, "DeepSeekMath", arXiv:2402.03300; but all tokens of a step have equal weight, as is TRL's default.
    # The paper's mean over each sequence first is `aggregation: sequence`.
    "grpo": {"advantage": {"kind": "group", "scale": True}},
    # Liu et al. 2025, "Understanding R1-Zero-Like Training", arXiv:2503.20783.
    "dr_grpo": {"advantage": {"kind": "group", "scale": False}, "aggregation": "constant", "kl": {"weight": 0.0}},
    # Yu et al. 2025, arXiv:2503.14476: clip-higher, token mean, dynamic sampling, no KL.
    "dapo": {
        "advantage": {"kind": "group", "scale": True},
        "surrogate": {"kind": "clip", "low": 0.2, "high": 0.28},
        "zero_variance": {"kind": "dynamic"},
        "kl": {"weight": 0.0},
    },
    # Ahmadian et al. 2024, "Back to Basics", arXiv:2402.14740: leave-one-out baseline, KL in the reward.
    "rloo": {"advantage": {"kind": "leave_one_out"}, "kl": {"estimator": "k1", "place": "reward"}},
    # Li et al. 2023, "ReMax", arXiv:2310.10505: the greedy episode's reward is the baseline, KL in the reward. The paper takes
    # one step per batch, where the ratio is 1; the clip is for the steps after it.
    "remax": {"advantage": {"kind": "greedy_baseline"}, "kl": {"estimator": "k1", "place": "reward"}},
    # REINFORCE with the whole batch as the baseline; each token pays for the divergence of the whole trajectory.
    "reinforce": {"advantage": {"kind": "batch", "center": "batch"}, "kl": {"estimator": "k1", "place": "reward"}},
    # Hu 2025, "REINFORCE++", arXiv:2501.03262: each token pays for the divergence from it on; whitened over the batch's tokens.
    "reinforce_plus_plus": {
        "advantage": {"kind": "batch", "center": "batch"},
        "kl": {"estimator": "k1", "place": "reward", "credit": "to_go"},
    },
    # MiniMax 2025, "MiniMax-M1", arXiv:2506.13585: the weight is clipped, no token loses its gradient.
    # Its cap of 5 is from Khatri et al. 2025, "ScaleRL", arXiv:2510.13786.
    "cispo": {"surrogate": {"kind": "cispo"}, "kl": {"weight": 0.0}},
    # Zheng et al. 2025, arXiv:2507.18071: one ratio a sequence.
    "gspo": {"surrogate": {"kind": "gspo"}, "aggregation": "sequence", "kl": {"weight": 0.0}},
    # Gao et al. 2025, arXiv:2511.20347: a soft gate instead of the clip.
    "sapo": {"surrogate": {"kind": "sapo"}, "aggregation": "sequence", "kl": {"weight": 0.0}},
    # Schulman et al. 2017, arXiv:1707.06347, with generalised advantage estimation, arXiv:1506.02438.
    "ppo": {"advantage": {"kind": "gae"}, "zero_variance": {"kind": "keep"}},
    # Yue et al. 2025, "VAPO", arXiv:2504.05118: Monte Carlo returns for the critic, a lambda that grows with the length for
    # the policy, the critic trained first, clip-higher, token mean, successes imitated, no KL. The paper trains the critic
    # for 50 steps: 12 epochs of 4 minibatches are 48. Value-clipping would hold these steps back.
    "vapo": {
        "advantage": {
            "kind": "gae",
            "lam_critic": 1.0,
            "length_alpha": 0.05,
            "critic": {"warmup_iterations": 1, "warmup_epochs": 12, "clip": None},
        },
        "surrogate": {"kind": "clip", "low": 0.2, "high": 0.28},
        "positive_examples": {"weight": 0.1},
        "zero_variance": {"kind": "keep"},
        "kl": {"weight": 0.0},
    },
    # Yuan et al. 2023, arXiv:2308.01825: imitate successes only.
    "rejection_sampling": {
        "advantage": {"kind": "success"},
        "surrogate": {"kind": "likelihood"},
        "zero_variance": {"kind": "keep"},
        "kl": {"weight": 0.0},
    },
    # Agarwal et al. 2024, "On-Policy Distillation", arXiv:2306.13649: the teacher scores each token.
    "distillation": {"advantage": {"kind": "teacher"}, "zero_variance": {"kind": "keep"}, "kl": {"weight": 0.0}},
}


CHOSEN = ("advantage", "surrogate", "zero_variance")  # what `auto` chooses

DEFAULTS: dict[str, Any] = {"kind": "grpo", "advantage": {"kind": "group"}, "surrogate": {"kind": "clip"}}


def with_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `values` into the preset named by their `kind`.

    A section with another `kind` than the preset's replaces the whole section. A bare number for `kl` is its weight.
    Where neither profile nor preset has a `kl`, there is none: its reference pass is a third of an update.
    """
    if isinstance(values.get("kl"), int | float) and not isinstance(values["kl"], bool):
        values = {**values, "kl": {"weight": values["kl"]}}
    preset = PRESETS.get(values.get("kind", "grpo"), {})
    kl = {} if "kl" in values or "kl" in preset else {"weight": 0.0}
    return _merged(_merged({**DEFAULTS, "kl": kl}, preset), values)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = below.get(key)
        alike = isinstance(under, Mapping) and isinstance(value, Mapping) and value.get("kind") in (None, under.get("kind"))
        merged[key] = _merged(under, value) if alike and under is not None else value
    return merged


class RateTrialsConfig(Strict):
    """Trials of learning rates on the training tasks, before the first iteration.

    Each of `rates` makes one update from the starting policy on half of those of the first iteration's tasks that give a
    signal; KL from the starting policy is measured on the other tasks. The largest rate is used up to which KL stays
    below 0.01 nats a token, the lowest where none does.
    """

    rates: Annotated[tuple[Positive, ...], Field(min_length=2)] = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3)

    @field_validator("rates")
    @classmethod
    def _sorted(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(sorted(set(rates)))
