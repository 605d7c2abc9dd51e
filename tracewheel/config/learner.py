"""The learner's part of a profile: orthogonal choices, and algorithms as named presets of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from tracewheel.config.algorithms import with_preset
from tracewheel.config.base import Count, NotNegative, Positive, Share, Strict
from tracewheel.config.mismatch import MismatchConfig

# --- advantages ---


class GroupAdvantageConfig(Strict):
    """Reward less the group's mean, divided by the group's standard deviation when `scale`."""

    kind: Literal["group"] = "group"
    scale: bool = True


class LeaveOneOutAdvantageConfig(Strict):
    """Reward less the mean of the group's other samples."""

    kind: Literal["leave_one_out"] = "leave_one_out"


class BatchAdvantageConfig(Strict):
    """Reward less the mean of the group or of the whole batch, divided by the batch's standard deviation."""

    kind: Literal["batch"] = "batch"
    center: Literal["group", "batch"] = "group"


class SuccessAdvantageConfig(Strict):
    """1 for a reward of at least `threshold`; the other samples are left out."""

    kind: Literal["success"] = "success"
    threshold: Share = 1.0


class TeacherAdvantageConfig(Strict):
    """Per token: the teacher's log-probability less the policy's. The teacher is a local adapter, model or both.

    It must have the policy's tokenizer.
    """

    kind: Literal["teacher"] = "teacher"
    base: str | None = None
    adapter: str | None = None


class CriticConfig(Strict):
    """The value function. `trunk`: a LoRA adapter of its own and a linear head on the policy's base.

    `light`: a two-layer network on the frozen base's hidden states. `warmup_iterations` train the
    critic alone. `clip` bounds how far a value moves from the one its advantages were computed with.
    """

    kind: Literal["trunk", "light"] = "trunk"
    rank: Count = 8
    hidden: Count = 128
    learning_rate: Positive = 1e-3
    epochs: Count = 2
    warmup_iterations: Annotated[int, Field(ge=0)] = 1
    clip: Positive | None = 0.2


class GaeAdvantageConfig(Strict):
    """Generalised advantage estimation over one trajectory's actions, observations skipped.

    `token`: each token is an action; `gamma` and `lam` apply from token to token, `turn_gamma` and
    `turn_lam` from the last token of a turn to the first of the next. `turn`: each turn is one action.
    `vtrace` replaces the returns by V-trace's (Espeholt et al. 2018), with its two truncation levels.
    """

    kind: Literal["gae"] = "gae"
    granularity: Literal["token", "turn"] = "token"
    gamma: Share = 1.0
    lam: Share = 1.0
    turn_gamma: Share = 1.0
    turn_lam: Share = 0.95
    whiten: bool = True
    vtrace: bool = False
    rho_max: Positive = 1.0
    c_max: Positive = 1.0
    critic: CriticConfig = CriticConfig()


AdvantageConfig = Annotated[
    GroupAdvantageConfig
    | LeaveOneOutAdvantageConfig
    | BatchAdvantageConfig
    | SuccessAdvantageConfig
    | TeacherAdvantageConfig
    | GaeAdvantageConfig,
    Field(discriminator="kind"),
]


class CreditConfig(Strict):
    """Who gets the reward. `trajectory`: every token alike. `turn`: each turn its discounted reward-to-go.

    Rewards of turns come from `rubric.turn_rewards`; without them the whole reward falls on the last turn.
    """

    kind: Literal["trajectory", "turn"] = "trajectory"
    discount: Share = 1.0


# --- ratio and clip ---


class ClipConfig(Strict):
    """PPO's clipped surrogate; `dual` bounds the loss of a bad token from above (Ye et al. 2020)."""

    kind: Literal["clip"] = "clip"
    low: Positive = 0.2
    high: Positive | None = None
    dual: Annotated[float, Field(gt=1.0)] | None = None


class CispoConfig(Strict):
    """The ratio, clipped at `high` and held constant, weighs the log-likelihood."""

    kind: Literal["cispo"] = "cispo"
    high: Positive = 5.0


class GspoConfig(Strict):
    """One ratio a sequence: the geometric mean of its tokens' ratios, clipped."""

    kind: Literal["gspo"] = "gspo"
    low: Positive = 3e-4
    high: Positive = 4e-4


class SapoConfig(Strict):
    """A sigmoid gate on the ratio, its temperature apart for good and bad tokens."""

    kind: Literal["sapo"] = "sapo"
    temperature_positive: Positive = 1.0
    temperature_negative: Positive = 1.05


class LikelihoodConfig(Strict):
    """The log-likelihood weighed by the advantage, without a ratio (REINFORCE; imitation when it is 1)."""

    kind: Literal["likelihood"] = "likelihood"


SurrogateConfig = Annotated[ClipConfig | CispoConfig | GspoConfig | SapoConfig | LikelihoodConfig, Field(discriminator="kind")]


# --- regularisation ---


class KlConfig(Strict):
    """Divergence to the reference policy, per action token. A bare number in a profile is its weight.

    `place`: added to the loss, or taken from the rewards of the tokens. `direction`: `reverse` is
    KL(policy || reference), `forward` KL(reference || policy); `late_direction` takes over from the
    share `late_from` of the iterations. With a `target` the weight is adapted (Ziegler et al. 2019)
    so that the divergence comes to it. `corrected` weighs each token's term by its ratio to the
    behaviour policy.
    """

    estimator: Literal["k1", "k2", "k3"] = "k3"
    weight: NotNegative = 0.01
    place: Literal["loss", "reward"] = "loss"
    direction: Literal["reverse", "forward"] = "reverse"
    late_direction: Literal["reverse", "forward"] | None = None
    late_from: Share = 0.8
    target: Positive | None = None
    horizon: Count = 10
    corrected: bool = True


class EntropyConfig(Strict):
    """`bonus` is the weight of the entropy of the action tokens; with a `floor` it counts only below it (nats)."""

    bonus: NotNegative = 0.0
    floor: NotNegative | None = None


class ZeroVarianceConfig(Strict):
    """What becomes of groups whose rewards are all the same.

    `skip`: left out. `clamp`: compared with the batch's mean, within plus and minus `limit`. `dynamic`:
    left out, and more tasks are rolled out until `min_groups` carry a signal, at most `max_rounds` times
    (DAPO). `keep`: they take part with advantage 0, which is a step on the KL alone.
    """

    kind: Literal["skip", "clamp", "dynamic", "keep"] = "skip"
    limit: Positive = 0.5
    min_groups: Count = 16
    max_rounds: Count = 3


class OffPolicyConfig(Strict):
    """What is done about tokens that the current policy did not sample.

    `proximal`: the policy that the ratio is clipped around: `behaviour` takes the stored
    log-probabilities, `recompute` those of the policy at the start of the update (decoupled PPO,
    Hilton et al. 2022). `correction` (with `recompute`) weighs by proximal over behaviour policy, a
    `token` or a `sequence` at a time: `truncate` caps the weight at `cap`, `mask` leaves out what lies
    outside 1/cap to `cap`. Trajectories more than `max_staleness` versions old are left out.
    """

    proximal: Literal["behaviour", "recompute"] = "behaviour"
    correction: Literal["none", "truncate", "mask"] = "none"
    level: Literal["token", "sequence"] = "token"
    cap: Annotated[float, Field(gt=1.0)] = 2.0
    max_staleness: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _correction_needs_proximal(self) -> OffPolicyConfig:
        if self.correction != "none" and self.proximal == "behaviour":
            raise ValueError("a correction compares two policies: set proximal to 'recompute'")
        return self


class BufferConfig(Strict):
    """Earlier trajectories that join an update: the newest (`fifo`), or by reward and age (`priority`).

    `rows` join each update, from the last `capacity` ones; `half_life` is in iterations.
    """

    kind: Literal["none", "fifo", "priority"] = "none"
    capacity: Count = 1024
    rows: Count = 64
    half_life: Positive = 2.0


# --- how it is computed ---


class LocalBackendConfig(Strict):
    """One process."""

    kind: Literal["local"] = "local"


class DeepSpeedConfig(Strict):
    """ZeRO (Rajbhandari et al. 2020) over the processes that torchrun starts.

    Stage 2 spreads gradients and the optimiser's state, stage 3 the weights too. `offload` keeps the
    optimiser's state in main memory, or `all`: the weights too (stage 3). Where torchrun has not
    started the update itself, the update starts so many `processes`: by default one for each GPU.
    A process that waits `timeout_minutes` for the others gives up.
    """

    kind: Literal["deepspeed"] = "deepspeed"
    processes: Count | None = None
    timeout_minutes: Positive = 30.0
    stage: Literal[2, 3] = 2
    offload: Literal["none", "optimizer", "all"] = "none"
    overlap_comm: bool = True


BackendConfig = Annotated[LocalBackendConfig | DeepSpeedConfig, Field(discriminator="kind")]


class UpdateConfig(Strict):
    """What every kind of update has.

    `schedule` is how the learning rate goes over the iterations: constant, or falling linearly towards 0.
    Each iteration's trajectories are gone through `epochs` times, in `minibatches` optimiser steps.
    `layout` is how a micro-batch of at most `micro_batch_tokens` lies in memory: `padded`, `packed` in
    one row without padding, or `shared_prefix` (a policy gradient's default), packed with the prompt of a group
    once. `weights` says whether a LoRA adapter is trained or the whole model. `replay_rows` generic rows join
    each step, their loss weighted by `replay_weight`. `mismatch` is about a sampler and a trainer that disagree.
    """

    learning_rate: Positive = 1e-3
    schedule: Literal["constant", "linear"] = "constant"
    epochs: Count = 1
    minibatches: Count = 4
    max_grad_norm: Positive = 1.0
    micro_batch_tokens: Count = 4096
    layout: Literal["padded", "packed", "shared_prefix"] = "padded"
    gradient_checkpointing: bool = False
    weights: Literal["lora", "full"] = "lora"
    backend: BackendConfig = LocalBackendConfig()
    replay_path: str | None = None
    replay_rows: Annotated[int, Field(ge=0)] = 24
    replay_weight: NotNegative = 0.3
    mismatch: MismatchConfig = MismatchConfig()


class PolicyGradientConfig(UpdateConfig):
    """A policy-gradient update: `kind` names a preset of the choices below, each of which can be set.

    `reward_normalisation`: `domain` puts the rewards of each task family on one scale, by their running mean
    and deviation.
    """

    kind: Literal[
        "grpo",
        "dr_grpo",
        "dapo",
        "rloo",
        "reinforce",
        "cispo",
        "gspo",
        "sapo",
        "ppo",
        "rejection_sampling",
        "distillation",
    ] = "grpo"
    advantage: AdvantageConfig = GroupAdvantageConfig()
    credit: CreditConfig = CreditConfig()
    surrogate: SurrogateConfig = ClipConfig()
    aggregation: Literal["token", "sequence", "constant"] = "token"
    constant_length: Count = 128
    kl: KlConfig = KlConfig()
    entropy: EntropyConfig = EntropyConfig()
    zero_variance: ZeroVarianceConfig = ZeroVarianceConfig()
    off_policy: OffPolicyConfig = OffPolicyConfig()
    buffer: BufferConfig = BufferConfig()
    layout: Literal["padded", "packed", "shared_prefix"] = "shared_prefix"
    reward_normalisation: Literal["none", "domain"] = "none"

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return with_preset(values)

    @model_validator(mode="after")
    def _parts_fit(self) -> PolicyGradientConfig:
        if self.credit.kind == "turn" and self.advantage.kind not in ("group", "leave_one_out", "batch"):
            raise ValueError(f"credit by turn needs an advantage over groups, not '{self.advantage.kind}'")
        if self.kl.place == "reward" and self.advantage.kind in ("success", "teacher"):
            raise ValueError(f"advantage '{self.advantage.kind}' has no reward to take the KL from: set kl.place to 'loss'")
        if self.reward_normalisation != "none" and self.advantage.kind in ("success", "teacher"):
            raise ValueError(f"advantage '{self.advantage.kind}' compares no rewards: set reward_normalisation to 'none'")
        if self.advantage.kind == "teacher" and not (self.advantage.base or self.advantage.adapter):
            raise ValueError("distillation needs a teacher: set advantage.adapter or advantage.base")
        if self.kl.estimator == "k1" and self.kl.place == "loss" and not self.kl.corrected and self.kl.weight:
            raise ValueError("K1 in the loss has a gradient only with kl.corrected: set it, or take another kl.estimator")
        if self.zero_variance.kind == "clamp" and self.advantage.kind in ("success", "teacher", "gae"):
            raise ValueError(f"advantage '{self.advantage.kind}' compares no groups: zero_variance.kind cannot be 'clamp'")
        if self.advantage.kind == "gae" and self.advantage.vtrace and self.off_policy.proximal != "recompute":
            raise ValueError("V-trace compares two policies: set off_policy.proximal to 'recompute'")
        return self


class DpoConfig(UpdateConfig):
    """Direct preference optimisation (Rafailov et al. 2023) on success and failure of one task, through TRL.

    `margin` is the least difference of reward that makes two samples a pair.
    """

    kind: Literal["dpo"]
    beta: Positive = 0.1
    loss: Literal["sigmoid", "hinge", "ipo"] = "sigmoid"
    pairs_per_group: Count = 4
    margin: Positive = 0.5

    @model_validator(mode="after")
    def _parts_fit(self) -> DpoConfig:
        if self.layout != "padded":
            raise ValueError(f"TRL's DPO pads its batches: layout '{self.layout}' is for the other algorithms")
        if self.backend.kind != "local":
            raise ValueError(f"DPO runs in one process: backend '{self.backend.kind}' is for the other algorithms")
        if self.mismatch.action == "correct":
            raise ValueError("DPO's loss has no ratio to correct: set mismatch.action to 'warn' or 'stop'")
        return self


def _family(values: Any) -> str:
    kind = values.get("kind") if isinstance(values, dict) else getattr(values, "kind", None)
    return "dpo" if kind == "dpo" else "policy_gradient"


LearnerConfig = Annotated[
    Annotated[PolicyGradientConfig, Tag("policy_gradient")] | Annotated[DpoConfig, Tag("dpo")], Discriminator(_family)
]
