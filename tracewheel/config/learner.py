"""The learner: how tokens pass through the model, orthogonal choices of an update, and algorithms as presets of them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from tracewheel.config.algorithms import (
    CHOSEN,
    AdvantageConfig,
    ComparingAdvantageConfig,
    GaeAdvantageConfig,
    GroupAdvantageConfig,
    TeacherAdvantageConfig,
    with_preset,
)
from tracewheel.config.base import Count, NotNegative, Positive, Share, Strict
from tracewheel.core.errors import ConfigError


class LocalBackendConfig(Strict):
    """Updates in one process."""

    kind: Literal["local"] = "local"


class DeepSpeedConfig(Strict):
    """ZeRO (Rajbhandari et al. 2020) over several processes.

    Stage 2 shards gradients and the optimiser's state, stage 3 the weights too. `offload` keeps the optimiser's state in
    main memory, or `all`: the weights too (stage 3). Unless torchrun has started the update, it starts `processes`
    processes (default: one for each GPU).
    """

    kind: Literal["deepspeed"] = "deepspeed"
    processes: Count | None = None
    stage: Literal[2, 3] = 2
    offload: Literal["none", "optimizer", "all"] = "none"
    overlap_comm: bool = True


BackendConfig = Annotated[LocalBackendConfig | DeepSpeedConfig, Field(discriminator="kind")]


class PassesConfig(Strict):
    """How the tokens of an optimiser step pass through the model, whatever their number.

    `weights`: train a LoRA adapter or the whole model. A step's tokens are cut into micro-batches of at most
    `micro_batch_tokens` tokens, or one sequence, whose gradients add up. `layout` of a micro-batch: `padded`, `packed` into
    one row without padding, or `shared_prefix`, packed with common beginnings only once. `gradient_checkpointing`
    recomputes each layer in the backward pass, which takes a third longer and keeps a fraction of the memory: on by default,
    as in TRL and verl. `backend`: one process or several.

    Attributes:
        RATES: The default learning rate by `weights`. LoRA takes about ten times the rate of full training (Schulman et al.
            2025, "LoRA Without Regret").
    """

    RATES: ClassVar[dict[str, float]] = {}

    max_grad_norm: Positive = 1.0
    micro_batch_tokens: Count = 4096
    layout: Literal["padded", "packed", "shared_prefix"] = "shared_prefix"
    gradient_checkpointing: bool = True
    weights: Literal["lora", "full"] = "lora"
    backend: BackendConfig = LocalBackendConfig()

    @model_validator(mode="before")
    @classmethod
    def _rate_of_weights(cls, values: Any) -> Any:
        if not isinstance(values, dict) or "learning_rate" in values or values.get("weights", "lora") not in cls.RATES:
            return values
        return {**values, "learning_rate": cls.RATES[values.get("weights", "lora")]}


class CreditConfig(Strict):
    """Credit assignment. `trajectory`: the same for every token. `turn`: each turn gets its discounted reward-to-go.

    Turn rewards come from `rubric.turn_rewards` and from the environment (`Observation.reward`); without them the last turn
    gets the whole reward.
    """

    kind: Literal["trajectory", "turn"] = "trajectory"
    discount: Share = 1.0


Dual = Annotated[float, Field(gt=1.0)] | Literal["auto"] | None


class DualConfig(Strict):
    """A surrogate whose loss for negative advantages is bounded.

    `dual` bounds the loss of tokens with a negative advantage from above, at `dual` times the advantage (Ye et al. 2020).
    `auto` is their 3 in an update that corrects for a mismatch of sampler and trainer, where one bad token with a log-ratio
    far off would otherwise decide the step, and none (null) elsewhere.
    """

    dual: Dual = "auto"


class ClipConfig(DualConfig):
    """PPO's clipped surrogate."""

    kind: Literal["clip"] = "clip"
    low: Positive = 0.2
    high: Positive | None = None


class CispoConfig(Strict):
    """The ratio, clipped at `high` and detached, weights the log-likelihood."""

    kind: Literal["cispo"] = "cispo"
    high: Positive = 5.0


class GspoConfig(DualConfig):
    """One clipped ratio a sequence: the geometric mean of its tokens' ratios."""

    kind: Literal["gspo"] = "gspo"
    low: Positive = 3e-4
    high: Positive = 4e-4


class SapoConfig(Strict):
    """A sigmoid gate on the ratio."""

    kind: Literal["sapo"] = "sapo"


class LikelihoodConfig(Strict):
    """The log-likelihood weighted by the advantage, without a ratio: REINFORCE, or imitation where the advantage is 1."""

    kind: Literal["likelihood"] = "likelihood"


SurrogateConfig = Annotated[ClipConfig | CispoConfig | GspoConfig | SapoConfig | LikelihoodConfig, Field(discriminator="kind")]


class KlConfig(Strict):
    """Divergence from the reference policy, per action token. A bare number in a profile is its weight; no `kl` is weight 0.

    `place`: added to the loss, or subtracted from rewards. `credit`, for rewards: every token pays for the divergence of the
    whole trajectory, or for that from it on (`to_go`; Hu 2025, with advantage `batch`). A critic's token rewards are to go
    anyway. With a `target` the weight is adapted to hold the divergence at that value (Ziegler et
    al. 2019). `corrected` weights each token's term by its ratio to the behaviour policy.
    """

    estimator: Literal["k1", "k2", "k3"] = "k3"
    weight: NotNegative = 0.01
    place: Literal["loss", "reward"] = "loss"
    credit: Literal["trajectory", "to_go"] = "trajectory"
    target: Positive | None = None
    corrected: bool = True


class EntropyConfig(Strict):
    """`bonus` is the weight of the entropy of action tokens."""

    bonus: NotNegative = 0.0


class PositiveExamplesConfig(Strict):
    """Imitation of successes in addition (VAPO, Yue et al. 2025): their mean negative log-likelihood, times `weight`.

    A success is one by the first verifier; process rewards and penalties do not change it.
    """

    weight: NotNegative = 0.0


class ZeroVarianceConfig(Strict):
    """What to do with groups whose rewards are all equal.

    `skip` drops them. `dynamic` drops them and rolls out more tasks until `min_groups` groups carry a signal, at most three
    times (DAPO). `keep` gives them advantage 0, which leaves only the KL term.
    """

    kind: Literal["skip", "dynamic", "keep"] = "skip"
    min_groups: Count = 16


class LostTasksConfig(Strict):
    """Imitation of verified solutions of lost tasks, which no sample of theirs can teach.

    A task is lost once all scored samples of its last `after_groups` groups failed, and before it is played where over half of
    the groups of its family and tier were lost. Each optimiser step also trains on up to
    `rows` solutions of lost tasks, their mean negative log-likelihood times `weight`. Of each task the first of `sources` that
    has a solution gives it: `logs` (successes of others, and what `warm_start.hindsight` relabels), `own` (an earlier policy
    of the loop), `teacher` (`warm_start.extra_demonstrations`; then the profile's `teacher` plays each task that was played
    and lost `teacher.samples` times, once a run). Where over half of the first iteration's groups are lost, the first update
    imitates solutions alone, for `at_start` epochs; 0 for never.

    Attributes:
        MOST: The share of the first iteration's groups above which imitation comes first.
    """

    MOST: ClassVar[float] = 0.5

    weight: Positive = 1.0
    rows: Count = 24
    after_groups: Count = 1
    sources: tuple[Literal["logs", "own", "teacher"], ...] = ("logs", "own", "teacher")
    at_start: Annotated[int, Field(ge=0)] = 0


class OffPolicyConfig(Strict):
    """What to do about tokens that an earlier policy sampled.

    `proximal` is the policy that the ratio is clipped around: `behaviour` uses the stored log-probabilities, `recompute`
    those of the policy at the start of the update (decoupled PPO, Hilton et al. 2022). `correction` (with `recompute`)
    weights by proximal over behaviour policy, per `token` or per `sequence` (the product of its tokens' ratios, or with
    `geometric` their geometric mean): `truncate` caps the weight at `cap`, `mask` drops weights outside 1/cap to cap.
    Trajectories more than `max_staleness` versions old are dropped.
    """

    proximal: Literal["behaviour", "recompute"] = "behaviour"
    correction: Literal["none", "truncate", "mask"] = "none"
    level: Literal["token", "sequence", "geometric"] = "token"
    cap: Annotated[float, Field(gt=1.0)] = 2.0
    max_staleness: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _check_correction(self) -> OffPolicyConfig:
        if self.correction != "none" and self.proximal == "behaviour":
            raise ValueError("a correction compares two policies: set proximal to 'recompute'")
        return self


class MismatchConfig(Strict):
    """What to do when trainer and sampler give a policy's tokens different log-probabilities.

    `correct` makes every update around the trainer's own log-probabilities and weights each token by trainer over sampler,
    as `off_policy` says: by default per token, at most 2 (truncated importance sampling, Yao et al. 2025). `warn` changes
    no update. `auto` corrects for every engine but the transformers engine, whose log-probabilities are the trainer's to
    rounding; imitation and DPO weigh no token by a ratio, so there it warns. `stop` ends the run above `threshold`.

    Only tokens of the policy being updated are compared: earlier versions are expected to differ. `threshold` is the mean
    absolute difference, in nats a token, that is warned about. Above 1 nat a token the sampler serves another model, and
    the run ends, whatever `action` says except `warn`. Both ends are decided by the mean without the largest 1% of the
    differences, so that no outlier ends a run. `correct` and `stop` cost one more forward pass over an update's tokens.
    """

    threshold: Positive = 0.02
    action: Literal["auto", "warn", "correct", "stop"] = "auto"


class UpdateConfig(PassesConfig):
    """Settings of every kind of update.

    `learning_rate` is by default 3e-5 for LoRA, 1e-6 for full training: published LoRA runs of 1 to 8B take 5e-6 (Unsloth)
    to 4e-5 (Tinker), 1e-4 worked at 0.1B, and TRL's rate for all weights is 1e-6. `auto` is found by trials before the first
    iteration, as `rate_trials` says. `schedule`: the learning rate over the iterations, constant or falling linearly
    towards 0. Each iteration's trajectories are trained on for `epochs` epochs of `minibatches` optimiser steps.
    `minibatch_of`: what the steps share out, single trajectories (of DPO: pairs) or whole groups. A step on whole groups reads
    with layout `shared_prefix` what a group's trajectories have in common once; a step on trajectories sees more tasks.
    Each step also trains on `replay_rows` rows of the generic text in `replay_path`, their loss weighted by 0.3.
    """

    RATES: ClassVar[dict[str, float]] = {"lora": 3e-5, "full": 1e-6}

    learning_rate: Positive | Literal["auto"] = 3e-5
    schedule: Literal["constant", "linear"] = "constant"
    epochs: Count = 1
    minibatches: Count = 4
    minibatch_of: Literal["trajectories", "groups"] = "trajectories"
    replay_path: str | None = None
    replay_rows: Annotated[int, Field(ge=0)] = 24
    mismatch: MismatchConfig = MismatchConfig()

    def rate(self) -> float:  # no property: keys hold those
        """The learning rate as a number.

        Raises:
            ConfigError: it is `auto`, and no trials have found it.
        """
        if self.learning_rate == "auto":
            raise ConfigError(
                "learner.learning_rate: auto is found by the trials of `tracewheel retrain` and `tracewheel stage improve`; "
                "a single update needs a number"
            )
        return self.learning_rate


class PolicyGradientConfig(UpdateConfig):
    """A policy-gradient update. `kind` names a preset of the choices below; each can be overridden. `auto` is
    `rejection_sampling` where over a quarter of the first update's groups are lost with equal rewards, else `grpo`.

    `aggregation: constant` divides by `constant_length`, about the tokens that a long episode samples.

    `reward_normalisation: domain` standardises the rewards of each task family by their running mean and deviation.

    `truncated` episodes reached `rollout.max_tokens` or `max_turns`. `keep`: they count with their score, because an agent
    that does not finish within its limits has failed in use, too. `mask`: their outcome is unknown, so they are left out
    like unscored ones, of group statistics too (the overlong filtering of DAPO; for limits that are tighter in training
    than in use). `bootstrap` (with `gae`): the critic's value of the state they end in replaces the reward of the last
    turn, as if they went on; it costs one more pass.
    """

    kind: Literal[
        "grpo", "dr_grpo", "dapo", "rloo", "remax", "reinforce", "reinforce_plus_plus", "cispo", "gspo", "sapo", "ppo", "vapo",
        "rejection_sampling", "distillation", "auto",
    ] = "grpo"  # fmt: skip
    advantage: AdvantageConfig = GroupAdvantageConfig()
    credit: CreditConfig = CreditConfig()
    surrogate: SurrogateConfig = ClipConfig()
    aggregation: Literal["token", "sequence", "constant"] = "token"
    constant_length: Count = 1024
    kl: KlConfig = KlConfig()
    entropy: EntropyConfig = EntropyConfig()
    positive_examples: PositiveExamplesConfig = PositiveExamplesConfig()
    zero_variance: ZeroVarianceConfig = ZeroVarianceConfig()
    lost_tasks: LostTasksConfig | None = None
    off_policy: OffPolicyConfig = OffPolicyConfig()
    truncated: Literal["keep", "mask", "bootstrap"] = "keep"

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return with_preset(values)

    @model_validator(mode="after")
    def _check_choices(self) -> PolicyGradientConfig:
        if self.kind == "auto" and any(getattr(self, one) != getattr(PolicyGradientConfig(), one) for one in CHOSEN):
            raise ValueError(f"kind 'auto' chooses {', '.join(CHOSEN)}: name a kind to set them")
        if self.credit.kind == "turn" and not isinstance(self.advantage, ComparingAdvantageConfig):
            raise ValueError(f"credit by turn needs an advantage over groups, not '{self.advantage.kind}'")
        if self.truncated == "bootstrap" and self.advantage.kind != "gae":
            raise ValueError(
                f"truncated 'bootstrap' needs a critic, and advantage '{self.advantage.kind}' has none: set truncated to "
                "'keep' or 'mask', or advantage.kind to 'gae'"
            )
        if self.kl.credit == "to_go" and (self.kl.place, self.advantage.kind, self.credit.kind) != (
            "reward",
            "batch",
            "trajectory",
        ):
            raise ValueError("kl.credit 'to_go' needs kl.place 'reward', advantage.kind 'batch' and credit.kind 'trajectory'")
        if self.kl.place == "reward" and self.advantage.kind in ("success", "teacher"):
            raise ValueError(f"advantage '{self.advantage.kind}' has no reward to subtract the KL from: set kl.place to 'loss'")
        if isinstance(self.advantage, TeacherAdvantageConfig) and not (self.advantage.base or self.advantage.adapter):
            raise ValueError("distillation needs a teacher: set advantage.adapter or advantage.base")
        if self.kl.estimator == "k1" and self.kl.place == "loss" and not self.kl.corrected and self.kl.weight:
            raise ValueError("K1 in the loss has a gradient only with kl.corrected: set it, or another kl.estimator")
        if self.learning_rate == "auto" and self.backend.kind != "local":
            raise ValueError("learning_rate 'auto' tries its rates in one process: set a number, or backend.kind to 'local'")
        critic = self.advantage.critic if isinstance(self.advantage, GaeAdvantageConfig) else None
        if self.learning_rate == "auto" and critic and critic.warmup_iterations:
            raise ValueError(
                "learning_rate 'auto' needs a first iteration that moves the policy: set a number, or "
                "advantage.critic.warmup_iterations to 0"
            )
        return self


class DpoConfig(UpdateConfig):
    """Direct preference optimisation (Rafailov et al. 2023), through TRL, on pairs of samples of one task.

    `learning_rate` is by default 1e-5 for LoRA, 1e-6 (TRL's) for full training.
    """

    RATES: ClassVar[dict[str, float]] = {"lora": 1e-5, "full": 1e-6}

    kind: Literal["dpo"]
    beta: Positive = 0.1
    loss: Literal["sigmoid", "hinge", "ipo"] = "sigmoid"
    pairs_per_group: Count = 4

    @model_validator(mode="after")
    def _check_choices(self) -> DpoConfig:
        if self.learning_rate == "auto":
            raise ValueError("learning_rate 'auto' measures a policy gradient's updates: set a number for DPO")
        if self.mismatch.action == "correct":
            raise ValueError("DPO's loss has no ratio to correct: set mismatch.action to 'warn' or 'stop'")
        return self


def _family(values: Any) -> str:
    kind = values.get("kind") if isinstance(values, dict) else getattr(values, "kind", None)
    return "dpo" if kind == "dpo" else "policy_gradient"


LearnerConfig = Annotated[
    Annotated[PolicyGradientConfig, Tag("policy_gradient")] | Annotated[DpoConfig, Tag("dpo")], Discriminator(_family)
]
