"""The configuration: one YAML profile, frozen and strict, with choices told apart by `kind`.

A profile is parsed once at the start of a command; every unknown key, wrong type and impossible
combination is reported with its path before anything runs. `--set a.b=c` overrides one value. Each
run stores the resolved profile.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tracewheel.errors import ConfigError

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1)]


class Strict(BaseModel):
    """Frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


T = TypeVar("T", bound=Strict)


class PolicyConfig(Strict):
    """The model that is trained: a Hugging Face id or a local path, and how it speaks."""

    base: str = "data/base"
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: str = "cpu"
    tool_format: Literal["hermes"] = "hermes"


class LoraConfig(Strict):
    """Low-rank adaptation (Hu et al. 2021) of the named linear layers."""

    rank: Count = 16
    alpha: Count = 32
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"


class EnvironmentConfig(Strict):
    """Which environment the tasks run in: a built-in name or `module:Class`."""

    kind: str = "workspace"


class IngestConfig(Strict):
    """Which logs to read: files or globs of OpenAI chat JSONL."""

    paths: tuple[str, ...] = ("data/traces/workspace.jsonl",)
    format: Literal["openai"] = "openai"


class CurationConfig(Strict):
    """How logged traces become tasks, splits and demonstrations. Counts are of tasks."""

    train_tasks: Count = 72
    validation_tasks: Count = 120
    held_out_tasks: Count = 200
    harder_tasks: Count = 100
    harder_tier: Count = 5
    min_attempts: Count = 4


class ReplayConfig(Strict):
    """Generic text mixed into an update, so that skills the tasks do not exercise are kept."""

    path: str | None = "data/base/replay.parquet"
    share: Share = 0.3


class WarmStartConfig(Strict):
    """Supervised fine-tuning on logged episodes, with the loss on assistant tokens only."""

    demonstrations: Literal["verified", "all"] = "verified"
    classes: tuple[Literal["multi_turn", "formatted", "negative"], ...] = ("multi_turn",)
    epochs: Count = 4
    batch_size: Count = 32
    learning_rate: Positive = 1e-3
    lora: LoraConfig = LoraConfig()
    replay: ReplayConfig = ReplayConfig()


class TransformersEngineConfig(Strict):
    """Batched generation with Hugging Face transformers, the KV cache kept across turns."""

    kind: Literal["transformers"] = "transformers"
    slots: Count = 256


EngineConfig = Annotated[TransformersEngineConfig, Field(discriminator="kind")]


class RolloutConfig(Strict):
    """How episodes are sampled. Token caps count the whole trajectory and a single turn."""

    engine: EngineConfig = TransformersEngineConfig()
    group_size: Annotated[int, Field(ge=2, le=64)] = 8
    temperature: Positive = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    max_turns: Count = 20
    max_tokens: Count = 400
    max_turn_tokens: Count = 48


class RubricTerm(Strict):
    """One verifier of a rubric: a built-in name, `module:Class`, or `task` for the one each task names."""

    kind: str = "task"
    weight: Positive = 1.0


class RubricConfig(Strict):
    """How a trajectory is scored: a weighted mean of verifiers, less a penalty for malformed calls.

    The first verifier alone says whether an episode is a success; the others shape the reward.
    """

    verifiers: Annotated[tuple[RubricTerm, ...], Field(min_length=1)] = (RubricTerm(),)
    malformed_penalty: Share = 0.0


class SamplerConfig(Strict):
    """Which tasks an iteration rolls out, by each task's Beta posterior of success.

    `difficulty` favours tasks solved less often than `target`; `learnability` weighs by p(1-p);
    `uniform` ignores the posterior. `decay` is the share of all evidence that is kept from run to run,
    `retain` the share of a task's evidence that is kept when it is rolled out again, because the policy
    has changed since. `floor` is the least weight of a task, as a share of the largest.
    """

    kind: Literal["difficulty", "learnability", "uniform"] = "difficulty"
    target: Share = 0.6
    decay: Share = 0.5
    retain: Share = 0.5
    floor: Share = 0.1


class LearnerConfig(Strict):
    """The policy update. `kl` is the weight of the K3 estimate to the starting policy.

    `schedule` is how the learning rate goes over the iterations: constant, or falling linearly towards 0.
    Each iteration's trajectories are gone through `epochs` times, in `minibatches` optimiser steps.
    `replay_rows` generic rows join each step, their loss weighted by `replay_weight`.
    """

    kind: Literal["grpo"] = "grpo"
    learning_rate: Positive = 1e-3
    schedule: Literal["constant", "linear"] = "constant"
    epochs: Count = 1
    minibatches: Count = 4
    clip: Positive = 0.2
    kl: Annotated[float, Field(ge=0.0)] = 0.01
    aggregation: Literal["token", "sequence"] = "token"
    scale_advantages: bool = True
    max_grad_norm: Positive = 1.0
    micro_batch_tokens: Count = 4096
    replay_path: str | None = "data/base/replay.parquet"
    replay_rows: Annotated[int, Field(ge=0)] = 24
    replay_weight: Annotated[float, Field(ge=0.0)] = 0.3


class TrainingConfig(Strict):
    """The reinforcement-learning loop."""

    iterations: Count = 10
    tasks_per_iteration: Count = 32
    validate_every: Count = 2


class EvaluationConfig(Strict):
    """Held-out evaluation: one greedy rollout and `samples` sampled ones a task, at its own temperature."""

    samples: Count = 4
    temperature: Positive = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    pass_at: tuple[int, ...] = (1, 4)
    bootstrap: Count = 2000


class GateConfig(Strict):
    """When a challenger is promoted. `family_margin` is the largest fall allowed to a family.

    `min_pairs` is the least number of tasks scored for both policies that a verdict may rest on.
    """

    confidence: Annotated[float, Field(gt=0.5, lt=1.0)] = 0.95
    family_margin: Share = 0.1
    min_pairs: Count = 20


class TrackingConfig(Strict):
    """MLflow: where to log and under which names."""

    uri: str = "sqlite:///mlflow/mlflow.db"
    experiment: str = "tracewheel"
    model_name: str = "tracewheel-workspace"
    traces_per_evaluation: Annotated[int, Field(ge=0)] = 20


class RetrainConfig(Strict):
    """A whole profile."""

    name: str
    seed: int = 0
    threads: Count = 2
    work_dir: str = "runs"
    policy: PolicyConfig = PolicyConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    ingest: IngestConfig = IngestConfig()
    curation: CurationConfig = CurationConfig()
    warm_start: WarmStartConfig = WarmStartConfig()
    rollout: RolloutConfig = RolloutConfig()
    rubric: RubricConfig = RubricConfig()
    sampler: SamplerConfig = SamplerConfig()
    learner: LearnerConfig = LearnerConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    gate: GateConfig = GateConfig()
    tracking: TrackingConfig = TrackingConfig()

    @model_validator(mode="after")
    def _caps_fit(self) -> RetrainConfig:
        if self.rollout.max_turn_tokens > self.rollout.max_tokens:
            raise ValueError("rollout.max_turn_tokens is larger than rollout.max_tokens")
        if max(self.evaluation.pass_at) > self.evaluation.samples:
            raise ValueError("evaluation.pass_at asks for more samples than evaluation.samples")
        return self


class BasePhaseConfig(Strict):
    """One phase of the base's training: its text, as weights of skills, and its optimiser steps."""

    skills: dict[str, Count]
    conversations: Count
    steps: Count
    learning_rate: Positive = 3e-3
    muon_learning_rate: Positive = 1e-2


class BasePolicyConfig(Strict):
    """The tiny base policy: its size, its text and its training.

    `complete_share` of the conversations are complete episodes of `complete_families`; the rest are
    single skills (`tracewheel/base_text.py`). Tokens outside assistant turns count `prompt_weight`.
    """

    seed: int = 0
    threads: Count = 2
    hidden_size: Count = 128
    layers: Count = 4
    heads: Count = 4
    kv_heads: Count = 2
    feed_forward: Count = 256
    complete_share: Share = 0.1
    complete_families: tuple[str, ...] = ("pattern",)
    phases: Annotated[tuple[BasePhaseConfig, ...], Field(min_length=1)]
    batch_tokens: Count = 6144
    prompt_weight: Share = 0.2
    replay_rows: Count = 2000


def load_config(path: str | Path, overrides: list[str] | None = None) -> RetrainConfig:
    """Read a profile and apply `a.b=value` overrides (values are YAML).

    Raises:
        ConfigError: the file is missing, is not YAML, or does not fit; the message names the key.
    """
    return _load(RetrainConfig, path, overrides)


def load_base_config(path: str | Path, overrides: list[str] | None = None) -> BasePolicyConfig:
    """Read the tiny base policy's profile; as `load_config`."""
    return _load(BasePolicyConfig, path, overrides)


def _load(model: type[T], path: str | Path, overrides: list[str] | None) -> T:
    path = Path(path)
    try:
        values = yaml.safe_load(path.read_text())
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such config file") from error
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: a profile is a mapping of keys to values")
    for override in overrides or []:
        _apply(values, override)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(_describe(problem) for problem in error.errors())
        raise ConfigError(f"{path}: {problems}") from error


def _describe(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"]) or "profile"
    if problem["type"] == "extra_forbidden":
        return f"{where}: no such key"
    return f"{where}: {problem['msg']}"


def _apply(values: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"--set {override}: expected key=value, as in --set training.iterations=4")
    *parents, last = key.split(".")
    node = values
    for part in parents:
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            raise ConfigError(f"--set {override}: '{part}' holds a value, not keys")
    try:
        node[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {override}: the value is not YAML: {error}") from error
