"""The sections of a profile, and the profile."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from tracewheel.config.algorithms import RateTrialsConfig
from tracewheel.config.base import Count, GivenKind, Positive, Share, Strict
from tracewheel.config.curation import CurationConfig
from tracewheel.config.evaluation import AimsConfig, ComparisonConfig, EvaluationConfig, GateConfig, RubricConfig, judges_of
from tracewheel.config.ingest import IngestConfig
from tracewheel.config.learner import LearnerConfig, PassesConfig, PolicyGradientConfig
from tracewheel.config.operations import AuditConfig, DoctorConfig, GuardConfig, ScheduleConfig
from tracewheel.config.placement import (
    PlacementConfig,
    ResourcesConfig,
    TransformersEngineConfig,
    check_placement,
    choose_dtype,
)
from tracewheel.config.rollout import EndpointConfig, RolloutConfig, SamplerConfig, TeacherConfig
from tracewheel.config.wheel_sections import read_wheel_sections, stages_among
from tracewheel.core.errors import ConfigError
from tracewheel.core.kind_table import OWN_CLASS, give, how_to_get, naming_kinds
from tracewheel.core.tool_formats import AUTO, FORMATS

# Keys without a default, and the values that they take.
WITHOUT_DEFAULT = {
    "policy.base": "a Hugging Face id, a local folder or a GGUF file",
    "environment.kind": "a built-in environment, recorded:DIR or module:Class",
    "ingest.paths": "files, folders or globs of logs",
}


def _tool_format(name: str) -> str:
    known = [AUTO, *FORMATS]
    if name not in known and ":" not in name:
        if how := how_to_get("tool format", name):
            if naming_kinds():
                raise ValueError(f"tool format '{name}' is {how}")
            return name
        raise ValueError(f"no tool format is called '{name}'; known: {', '.join(known)}, or your own as 'module:Class'")
    give(name)
    return name


class PolicyConfig(Strict):
    """The model that is trained, and how it speaks.

    `tool_format` is how it writes calls: a built-in format, your own as `module:Class`, or `auto` for the one that its
    chat template writes.

    `base` is a Hugging Face id, a local folder or a GGUF file (converted once). `chat_template` is a file with a Jinja
    template, used everywhere instead of the base's own. `template_options` is what the template reads beside messages and
    tools, such as `enable_thinking`.

    `device` is `cpu`, `cuda`, or `cuda:N` for a GPU other than the first.

    `dtype` is the type of the base's weights. `auto` is replaced while the profile is read, so that the keys of stages and
    the stored profile name the type that runs: a run that is resumed on other hardware, where `auto` means another type,
    has other keys and mixes nothing.

    `deterministic` takes kernels on a GPU that add in one order, in the learner and in vLLM: slower, and the same bits each
    time but for what docs/lineage.md names.
    """

    base: str = ""
    dtype: Literal["float32", "bfloat16"] = "float32"  # "auto" as input, and by default
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"
    deterministic: bool = False
    tool_format: Annotated[str, AfterValidator(_tool_format)] = "auto"
    chat_template: str | None = None
    template_options: dict[str, bool | int | float | str] = Field(default_factory=dict)

    @field_validator("template_options")
    @classmethod
    def _read_by_the_template(cls, options: dict[str, bool | int | float | str]) -> dict[str, bool | int | float | str]:
        taken = sorted(options.keys() & {"messages", "tools", "add_generation_prompt", "tokenize"})
        if taken:
            raise ValueError(f"'{taken[0]}' is set by the loop; name what else the template reads, such as enable_thinking")
        return options

    @model_validator(mode="before")
    @classmethod
    def _choose_dtype(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("dtype", "auto") != "auto":
            return values
        device = values.get("device", "cpu")
        base = values.get("base", "")
        known = isinstance(base, str) and isinstance(device, str)
        return values | {"dtype": choose_dtype(base, device)[0] if known else "float32"}


class EnvironmentConfig(GivenKind):
    """Which environment the tasks run in: a built-in name, `recorded:DIR` or `module:Class`, and its arguments.

    `{kind: recorded, args: {path: DIR}}` is `recorded:DIR`. `verifiers` are classes of your own that its tasks may name
    (`module:Class`), beside those of the environment's own module or package: no data decides what is imported.
    """

    verifiers: tuple[Annotated[str, Field(pattern=OWN_CLASS.pattern)], ...] = ()

    def _give(self) -> None:
        give(self.spec, *self.verifiers)

    @model_validator(mode="before")
    @classmethod
    def _recording(cls, values: Any) -> Any:
        if not isinstance(values, dict) or values.get("kind") != "recorded":
            return values
        args = values.get("args")
        if not isinstance(args, dict) or args.keys() != {"path"} or not isinstance(args["path"], str):
            raise ValueError("environment 'recorded' takes one argument, path: the folder of a recording")
        return {**values, "kind": f"recorded:{args['path']}", "args": {}}


class ReplayConfig(Strict):
    """Generic text mixed into training, so that skills outside the tasks are kept. It makes up a share `share` of the rows."""

    path: str | None = None
    share: Share = 0.3


class LoraConfig(Strict):
    """Low-rank adaptation (Hu et al. 2021) of the named linear layers."""

    rank: Count = 16
    alpha: Count = 32
    targets: tuple[str, ...] | Literal["all-linear"] = "all-linear"


class WarmStartConfig(PassesConfig):
    """Supervised fine-tuning on logged episodes, with the loss on assistant tokens only.

    Each optimiser step is on `batch_size` examples, 16 by default: LoRA loses with large batches (Schulman et al. 2025). Two
    epochs are in the middle of what is usual for LoRA (1 to 3), and more teach a pretrained model its logs by heart.
    `learning_rate` is by default 2e-4 for LoRA (Dettmers et al. 2023, QLoRA, for 7 and 13B), 2e-5 (TRL's) for full training;
    a model of 0.1B takes up to 1e-3. It rises over the first `warmup_steps` steps (null: a tenth of them, at most 10), then
    falls linearly. `extra_demonstrations` are output folders of `tracewheel teach`. With `hindsight`, a failed episode that
    solves another task becomes a demonstration of that task, if the environment is a `GoalFinder`. With `demonstrations:
    none` nothing is imitated, and the loop starts from the base: for a model that solves some of the tasks already.
    """

    RATES: ClassVar[dict[str, float]] = {"lora": 2e-4, "full": 2e-5}

    demonstrations: Literal["verified", "all", "none"] = "verified"
    extra_demonstrations: tuple[str, ...] = ()
    hindsight: bool = False
    classes: tuple[Literal["multi_turn", "formatted", "negative"], ...] = ("multi_turn",)
    epochs: Count = 2
    batch_size: Count = 16
    learning_rate: Positive = 2e-4
    warmup_steps: Annotated[int, Field(ge=0)] | None = None
    lora: LoraConfig = LoraConfig()
    replay: ReplayConfig = ReplayConfig()


class TrainingConfig(Strict):
    """The reinforcement-learning loop. It ends before an iteration that would exceed the budget of `episodes`.

    16 tasks by the 8 samples of `rollout.group_size` are 128 episodes an iteration, 32 an optimiser step, which is where a
    pretrained model of 0.1B learnt. 20 iterations are 80 steps. Each validation of the default size plays as many episodes as
    two iterations, so that every fourth iteration keeps validation below the cost of training.
    """

    iterations: Count = 20
    episodes: Count | None = None
    tasks_per_iteration: Count = 16
    validate_every: Count = 4


class TrackingConfig(Strict):
    """MLflow: address and names."""

    uri: str = "sqlite:///mlflow/mlflow.db"
    experiment: str = "tracewheel"
    model_name: str = "tracewheel"
    traces_per_evaluation: Annotated[int, Field(ge=0)] = 20


StageName = Literal[
    "ingest",
    "curate",
    "warm_start",
    "champion",
    "rollout",
    "collect",
    "score",
    "rate_trials",
    "teach",
    "solutions",
    "update",
    "go_back",
    "evaluate",
    "audit",
    "gate",
]


class RetrainConfig(Strict):
    """A whole profile, with sections of installed wheels beside those of the core (`wheel_sections`).

    A stage that takes longer than `stage_seconds` ends with an error, and the run can be resumed; null is no limit, because
    how long an update takes depends on the model. One number is for every stage; `{update: 3600, rollout: 1800}` is for those
    that it names.
    """

    model_config = ConfigDict(extra="allow")  # of wheels alone, as `_read_wheel_sections` checks

    name: str
    seed: int = 0
    threads: Count = 2
    work_dir: str = "runs"
    stage_seconds: Positive | dict[StageName, Positive] | None = None
    policy: PolicyConfig = PolicyConfig()
    environment: EnvironmentConfig = EnvironmentConfig()
    ingest: IngestConfig = IngestConfig()
    curation: CurationConfig = CurationConfig()
    teacher: TeacherConfig | None = None
    baseline: EndpointConfig | None = None
    warm_start: WarmStartConfig = WarmStartConfig()
    rollout: RolloutConfig = RolloutConfig()
    rubric: RubricConfig = RubricConfig()
    sampler: SamplerConfig = SamplerConfig()
    learner: LearnerConfig = PolicyGradientConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    gate: GateConfig = GateConfig()
    audit: AuditConfig = AuditConfig()
    guard: GuardConfig = GuardConfig()
    rate_trials: RateTrialsConfig = RateTrialsConfig()
    doctor: DoctorConfig = DoctorConfig()
    aims: AimsConfig = AimsConfig()
    comparison: ComparisonConfig = ComparisonConfig()
    tracking: TrackingConfig = TrackingConfig()
    placement: PlacementConfig = PlacementConfig()
    resources: ResourcesConfig = ResourcesConfig()
    schedule: ScheduleConfig = ScheduleConfig()

    def seconds_for(self, stage: str) -> float | None:
        """The time limit of a stage; None without one."""
        limits: dict[Any, float] | float | None = self.stage_seconds
        return limits.get(stage) if isinstance(limits, dict) else limits

    @property
    def wheel_sections(self) -> tuple[str, ...]:
        """Names of the sections that stages of wheels read, sorted."""
        return stages_among(self.model_extra or {})

    @property
    def largest_rank(self) -> int:
        """The largest rank that an adapter of this profile may have."""
        return self.warm_start.lora.rank

    @property
    def own_sampler(self) -> bool:
        """Whether the engine is the transformers engine, whose log-probabilities are the learner's to rounding."""
        return isinstance(self.rollout.engine, TransformersEngineConfig)

    @property
    def certifies(self) -> bool:
        """Whether updates measure their fidelity: episodes are programs, which may rewrite their histories."""
        return self.rollout.harness is not None

    @property
    def greedy_baseline(self) -> bool:
        """Whether each task of an iteration is also played greedily, for the baseline of its rewards."""
        return isinstance(self.learner, PolicyGradientConfig) and self.learner.advantage.kind == "greedy_baseline"

    @property
    def schedule_iterations(self) -> int | None:
        """The iterations over which the learning rate falls; None where it is constant, so that a longer run goes on."""
        return self.training.iterations if self.learner.schedule == "linear" else None

    @property
    def episodes_per_task(self) -> int:
        """Episodes of each task of an iteration, a greedy one for the baseline included."""
        return self.rollout.group_size + self.greedy_baseline

    @property
    def keeps_learner(self) -> bool:
        """Whether the learner stays loaded between updates; see `PlacementConfig`."""
        if self.placement.keep_learner is not None:
            return self.placement.keep_learner
        freed = isinstance(self.rollout.engine, TransformersEngineConfig) or self.placement.share == "sleep"
        return self.policy.device == "cpu" or not freed

    @property
    def episodes_per_iteration(self) -> int:
        """Episodes of one iteration, without the refills of dynamic sampling."""
        return min(self.training.tasks_per_iteration, self.curation.train_tasks) * self.episodes_per_task

    def require(self, *keys: str) -> None:
        """Check that the profile sets keys that have no default.

        Args:
            keys: Of `WITHOUT_DEFAULT`, as in `policy.base`.

        Raises:
            ConfigError: one is not set; the message names it.
        """
        for key in keys:
            section, name = key.split(".")
            if not getattr(getattr(self, section), name):
                raise ConfigError(f"{key}: not set; it takes {WITHOUT_DEFAULT[key]}")

    def require_run(self) -> None:
        """Check that the profile can start a run: no key is missing, and what is sampled can be trained on.

        Raises:
            ConfigError: a key without default is not set, or a policy gradient would train on a part of the distribution.
        """
        self.require(*WITHOUT_DEFAULT)
        if self.rollout.top_p < 1.0 and isinstance(self.learner, PolicyGradientConfig):
            raise ConfigError(
                f"rollout.top_p is {self.rollout.top_p:g}: the stored log-probabilities, and the learner's, are those of all "
                "tokens, not of the part that is drawn from, so every ratio would be wrong: set it to 1.0 "
                "(evaluation.top_p may be any)"
            )

    @model_validator(mode="before")
    @classmethod
    def _read_wheel_sections(cls, values: Any) -> Any:
        return read_wheel_sections(values, cls.model_fields.keys())

    @model_validator(mode="after")
    def _check_limits(self) -> RetrainConfig:
        if self.rollout.max_turn_tokens > self.rollout.max_tokens:
            raise ValueError("rollout.max_turn_tokens is larger than rollout.max_tokens")
        if max(self.evaluation.pass_at) > self.evaluation.samples:
            raise ValueError("evaluation.pass_at asks for more samples than evaluation.samples")
        return self

    @model_validator(mode="after")
    def _check_draws(self) -> RetrainConfig:
        if self.policy.deterministic and getattr(self.rollout.engine, "draws", "ours") == "engine":
            raise ValueError(
                "rollout.engine.draws is 'engine', and that vLLM draws the same tokens again is not shown: set it to 'ours', "
                "or policy.deterministic to false"
            )
        return self

    @model_validator(mode="after")
    def _check_training_world(self) -> RetrainConfig:
        kind = self.environment.kind
        if self.rollout.exploration.environment_args and (kind == "several" or kind.startswith("recorded:")):
            raise ValueError(f"rollout.exploration.environment_args: environment '{kind}' takes none; leave them out")
        return self

    @model_validator(mode="after")
    def _check_judges(self) -> RetrainConfig:
        held_back = self.evaluation.rubric
        if held_back and (shared := judges_of(self.rubric) & judges_of(held_back)):
            model = min(shared)[0]
            raise ValueError(
                f"evaluation.rubric: its judge '{model}' asks what the judge of `rubric` asks: a policy trained on a judge is "
                "not evaluated by it; choose another model or other criteria"
            )
        return self

    @model_validator(mode="after")
    def _check_mode(self) -> RetrainConfig:
        dynamic = isinstance(self.learner, PolicyGradientConfig) and self.learner.zero_variance.kind == "dynamic"
        if self.rollout.mode != "sync" and dynamic:
            raise ValueError(
                "learner.zero_variance.kind 'dynamic' needs an iteration's rollouts before it asks for more: "
                "set rollout.mode to 'sync', or zero_variance.kind to 'skip'"
            )
        return self

    @model_validator(mode="after")
    def _check_baseline(self) -> RetrainConfig:
        if self.greedy_baseline and self.rollout.mode == "async":
            raise ValueError(
                "learner.advantage.kind 'greedy_baseline' compares episodes of one policy, and with rollout.mode 'async' the "
                "episodes of a group may be of several: set it to 'sync', or choose another algorithm, as 'rloo'"
            )
        return self

    @model_validator(mode="after")
    def _check_placement(self) -> RetrainConfig:
        check_placement(self)
        return self

    @model_validator(mode="after")
    def _check_weights(self) -> RetrainConfig:
        if self.warm_start.weights == "full" and self.learner.weights == "lora":
            raise ValueError("warm_start.weights is 'full', which trains no adapter: set learner.weights to 'full'")
        return self
