"""The sections of a profile, and the profile."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from tracewheel.config.adaptation import LoraConfig, SpecialistsConfig
from tracewheel.config.base import Count, Positive, Share, Strict
from tracewheel.config.curation import CurationConfig
from tracewheel.config.doctor import DoctorConfig
from tracewheel.config.endpoint import EndpointConfig
from tracewheel.config.engines import EngineConfig, TransformersEngineConfig
from tracewheel.config.guard import GuardConfig
from tracewheel.config.ingest import IngestConfig
from tracewheel.config.learner import LearnerConfig, PolicyGradientConfig
from tracewheel.config.operations import ScheduleConfig, ScreeningConfig
from tracewheel.config.passes import PassesConfig
from tracewheel.config.placement import PlacementConfig, check_placement
from tracewheel.config.precision import choose_dtype
from tracewheel.config.rate_trials import RateTrialsConfig
from tracewheel.config.resources import ResourcesConfig
from tracewheel.config.rubric import RubricConfig
from tracewheel.config.sampler import SamplerConfig
from tracewheel.config.teacher import TeacherConfig
from tracewheel.config.workers import LocalWorkersConfig, WorkersConfig
from tracewheel.core.errors import ConfigError

# Keys without a default, and the values that they take.
WITHOUT_DEFAULT = {
    "policy.base": "a Hugging Face id, a local folder or a GGUF file",
    "environment.kind": "a built-in environment, recorded:DIR or module:Class",
    "ingest.paths": "files, folders or globs of logs",
}


# As in `tracewheel.chat.formats`, which is on the same floor; a test compares.
TOOL_FORMATS = ("auto", "deepseek", "gpt_oss", "hermes", "llama3_json", "mistral", "pythonic", "qwen3_coder")


def _tool_format(name: str) -> str:
    if name not in TOOL_FORMATS and ":" not in name:
        raise ValueError(f"no tool format is called '{name}'; known: {', '.join(TOOL_FORMATS)}, or your own as 'module:Class'")
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
    """

    base: str = ""
    dtype: Literal["float32", "bfloat16"] = "float32"  # "auto" as input, and by default
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"
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


class EnvironmentConfig(Strict):
    """Which environment the tasks run in: a built-in name, `recorded:DIR` or `module:Class`."""

    kind: str = ""


class ReplayConfig(Strict):
    """Generic text mixed into training, so that skills outside the tasks are kept. It makes up a share `share` of the rows."""

    path: str | None = None
    share: Share = 0.3


class WarmStartConfig(PassesConfig):
    """Supervised fine-tuning on logged episodes, with the loss on assistant tokens only.

    Each optimiser step is on `batch_size` examples, 16 by default: LoRA loses with large batches (Schulman et al. 2025). Two
    epochs are in the middle of what is usual for LoRA (1 to 3), and more teach a pretrained model its logs by heart.
    `learning_rate` is by default 2e-4 for LoRA (Dettmers et al. 2023, QLoRA, for 7 and 13B), 2e-5 (TRL's) for full
    training; a model of 0.1B takes up to 1e-3. It rises over the first `warmup_steps` steps, then
    falls linearly. `extra_demonstrations` are output folders of `tracewheel teach`. With `hindsight`, a failed episode
    that solves another task becomes a demonstration of that task, if the environment is a `GoalFinder`.
    """

    RATES: ClassVar[dict[str, float]] = {"lora": 2e-4, "full": 2e-5}

    demonstrations: Literal["verified", "all"] = "verified"
    extra_demonstrations: tuple[str, ...] = ()
    hindsight: bool = False
    classes: tuple[Literal["multi_turn", "formatted", "negative"], ...] = ("multi_turn",)
    epochs: Count = 2
    batch_size: Count = 16
    learning_rate: Positive = 2e-4
    warmup_steps: Annotated[int, Field(ge=0)] = 10
    lora: LoraConfig = LoraConfig()
    replay: ReplayConfig = ReplayConfig()


class ExplorationConfig(Strict):
    """Exploration in training rollouts; evaluation never explores.

    The temperature moves linearly from `rollout.temperature` in the first iteration to `temperature_end` in the last. The
    samples of a group are spread evenly from 1 - `temperature_spread` to 1 + `temperature_spread` times that temperature.
    With probability `epsilon` a turn is forced to begin with a call of a random tool of `tools` (default: all tools).
    Forced tokens never count as sampled.
    """

    temperature_end: Positive | None = None
    temperature_spread: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    epsilon: Share = 0.0
    tools: tuple[str, ...] = ()


class RolloutConfig(Strict):
    """How episodes are sampled. `max_tokens` bounds a whole trajectory, `max_turn_tokens` a single turn.

    4,096 tokens hold an agent's system prompt, its tools and a dozen turns, within the window of nearly every model; 512 a
    turn are TRL's bound of a completion, several times a tool call. A model that thinks before each call needs more of both.

    `mode`: `sync` samples an iteration, then updates; `overlap` samples the next iteration with the current policy while
    the update runs; in `async`, `workers` sample all the time and switch to each new policy, and no token that is trained
    on was sampled by a policy more than `max_staleness` updates old. `tool_threads` is the number of threads that step
    environments, so that a slow tool delays only its own episode; with 0 one thread steps them, one after the other.

    `step_seconds` is how long one call of an environment may take, `episode_seconds` how long all calls of an episode may take
    together (generation does not count). An episode over a limit has failed through the infrastructure, and the others go on.
    null is no limit; without both limits and threads, environments are stepped in the main thread. A tool that runs a test
    suite takes minutes, so the limits are wide: they are there for what never ends.
    """

    engine: EngineConfig = TransformersEngineConfig()
    group_size: Annotated[int, Field(ge=2, le=64)] = 8
    temperature: Positive = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    max_turns: Count = 20
    max_tokens: Count = 4096
    max_turn_tokens: Count = 512
    exploration: ExplorationConfig = ExplorationConfig()
    mode: Literal["sync", "overlap", "async"] = "sync"
    max_staleness: Count = 1
    tool_threads: Annotated[int, Field(ge=0)] = 0
    step_seconds: Positive | None = 300.0
    episode_seconds: Positive | None = 3600.0
    workers: WorkersConfig = LocalWorkersConfig()

    @property
    def lag(self) -> int:
        """The maximum age, in updates, of the policy that sampled a token that is trained on."""
        return {"sync": 0, "overlap": 1, "async": self.max_staleness}[self.mode]


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
    specialists: SpecialistsConfig | None = None


class EvaluationConfig(Strict):
    """Evaluation: one greedy rollout and `samples` sampled rollouts a task, at `temperature`.

    With two samples instead of four a comparison costs 0.6 times the episodes, and its standard error is at most a tenth
    larger: with the gate's weights, the greedy rollout is most of a task's variance.
    """

    samples: Count = 2
    temperature: Positive = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    pass_at: tuple[int, ...] = (1, 2)
    bootstrap: Count = 2000


class GateConfig(Strict):
    """When a challenger is promoted; `docs/gate.md` gives the reasons for the defaults.

    A policy's figure is `greedy_weight` times greedy success plus the rest times sampled success. `confidence` is that of
    the two-sided interval of the difference, over all gates of a year together; `gates_per_year` is how many it is divided
    between: 365 for a run each night, 52 for one each week, 1 for a single comparison. `family_margin` is the largest drop
    allowed for a task family, `min_pairs` the minimum number of tasks scored for both policies. With `looks` above 1 the
    held-out tasks are played in so many parts, and the comparison ends after the first part that makes the answer clear.
    """

    confidence: Annotated[float, Field(gt=0.5, lt=1.0)] = 0.95
    gates_per_year: Count = 365
    greedy_weight: Share = 0.5
    family_margin: Share = 0.1
    min_pairs: Count = 20
    looks: Annotated[int, Field(ge=1, le=20)] = 1


class ComparisonConfig(Strict):
    """What is trained and evaluated for comparison alone. No decision reads it, so by default nothing is.

    `warm_starts`: `one` trains the warm start that the loop begins with (`warm_start.demonstrations`), none where it begins
    with a champion; `both` trains one on verified and one on all logs. `policies`: `gate` evaluates the two policies that the
    gate compares on the held-out and harder tasks, `all` base, warm starts and champion too. With `aa` the policy to beat is
    evaluated a second time on the held-out split, with another seed: what differs is noise, and the report shows it beside
    the gain. That is a third more of the evaluation at the end of a run.
    """

    warm_starts: Literal["one", "both"] = "one"
    policies: Literal["gate", "all"] = "gate"
    aa: bool = False


class AimsConfig(Strict):
    """Rates that a run is meant to reach. The report says whether it did; nothing is trained or chosen by them.

    `harder` is greedy success on the harder tier. A run below it also measures each validated policy on that tier, so that
    the report shows how the rate developed.
    """

    harder: Share | None = None


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
    "update",
    "go_back",
    "merge",
    "evaluate",
    "join",
    "gate",
]


class RetrainConfig(Strict):
    """A whole profile.

    A stage that takes longer than `stage_seconds` ends with an error, and the run can be resumed; null is no limit, because
    how long an update takes depends on the model. One number is for every stage; `{update: 3600, rollout: 1800}` is for those
    that it names.
    """

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
    guard: GuardConfig = GuardConfig()
    rate_trials: RateTrialsConfig = RateTrialsConfig()
    doctor: DoctorConfig = DoctorConfig()
    aims: AimsConfig = AimsConfig()
    comparison: ComparisonConfig = ComparisonConfig()
    tracking: TrackingConfig = TrackingConfig()
    placement: PlacementConfig = PlacementConfig()
    resources: ResourcesConfig = ResourcesConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    screening: ScreeningConfig = ScreeningConfig()

    def seconds_for(self, stage: str) -> float | None:
        """The time limit of a stage; None without one."""
        limits: dict[Any, float] | float | None = self.stage_seconds
        return limits.get(stage) if isinstance(limits, dict) else limits

    @property
    def largest_rank(self) -> int:
        """The largest rank that an adapter of this profile may have: a merge may need the ranks of all its parts."""
        lora, specialists = self.warm_start.lora, self.training.specialists
        ranks = [lora.rank, *(shape.rank for shape in lora.families.values())]
        return max(ranks) * (len(specialists.groups) + 1 if specialists else 1)

    @property
    def own_sampler(self) -> bool:
        """Whether the engine is the transformers engine, whose log-probabilities are the learner's to rounding."""
        return isinstance(self.rollout.engine, TransformersEngineConfig)

    @property
    def greedy_baseline(self) -> bool:
        """Whether each task of an iteration is also played greedily, for the baseline of its rewards."""
        return isinstance(self.learner, PolicyGradientConfig) and self.learner.advantage.kind == "greedy_baseline"

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

    @model_validator(mode="after")
    def _check_limits(self) -> RetrainConfig:
        if self.rollout.max_turn_tokens > self.rollout.max_tokens:
            raise ValueError("rollout.max_turn_tokens is larger than rollout.max_tokens")
        if max(self.evaluation.pass_at) > self.evaluation.samples:
            raise ValueError("evaluation.pass_at asks for more samples than evaluation.samples")
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
                "episodes of a group may be of several: set it to 'sync' or 'overlap', or choose another algorithm, as 'rloo'"
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
        specialists = self.training.specialists
        if specialists and (self.warm_start.weights == "full" or self.learner.weights == "full"):
            raise ValueError("training.specialists are adapters: set warm_start.weights and learner.weights to 'lora'")
        if self.warm_start.lora.families and not specialists:
            raise ValueError("warm_start.lora.families shape specialists: set training.specialists, or leave them out")
        for families in specialists.groups.values() if specialists else ():
            self.warm_start.lora.of(families)
        return self
