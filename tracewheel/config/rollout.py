"""How episodes are sampled, and what explores."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, Tag, model_serializer

from tracewheel.config.base import Count, NotNegative, Positive, Strict, kind_or
from tracewheel.config.harness import HarnessConfig
from tracewheel.config.placement import EngineConfig, TransformersEngineConfig


class WorkerCountConfig(Strict):
    """`count` workers sample at once."""

    count: Count = 1


class LocalWorkersConfig(WorkerCountConfig):
    """Processes on this machine, each with `threads` torch threads."""

    kind: Literal["local"] = "local"
    threads: Count = 1


class RayWorkersConfig(WorkerCountConfig):
    """Workers on a Ray cluster, each with `cpus` CPUs and `gpus` GPUs.

    `address` is the address of a running cluster, or `auto` for the one this machine belongs to; null starts one here.
    """

    kind: Literal["ray"]
    address: str | None = None
    cpus: NotNegative = 1.0
    gpus: NotNegative = 0.0


WorkersConfig = Annotated[
    Annotated[LocalWorkersConfig, Tag("local")] | Annotated[RayWorkersConfig, Tag("ray")], kind_or("local")
]


class ExplorationConfig(Strict):
    """Exploration in training rollouts; evaluation never explores.

    Training episodes run in the environment with `environment_args` beside `environment.args`: noise in training alone, so that
    a policy reads the replies instead of counting its calls (Machado et al. 2018, sticky actions; Tobin et al. 2017, domain
    randomisation).
    """

    environment_args: dict[str, Any] = Field(default_factory=dict)

    @model_serializer(mode="wrap")
    def _without_arguments(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without arguments it reads as it did before there were any, so that its results keep their names."""
        values: dict[str, Any] = dump(self)
        if not values.get("environment_args", self):
            del values["environment_args"]
        return values


class TokenSamplingConfig(Strict):
    """How tokens are sampled: at `temperature`, of the likeliest ones that together have the probability `top_p`."""

    temperature: Positive = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0


class RolloutConfig(TokenSamplingConfig):
    """How episodes are sampled. `max_tokens` bounds a whole trajectory, `max_turn_tokens` a single turn.

    4,096 tokens hold an agent's system prompt, its tools and a dozen turns, within the window of nearly every model; 512 a
    turn are TRL's bound of a completion, several times a tool call. A model that thinks before each call needs more of both.

    `mode`: `sync` samples an iteration, then updates; `overlap` samples the next iteration with the current policy while
    the update runs; in `async`, `workers` sample all the time and switch to each new policy, and no token that is trained
    on was sampled by a policy more than `max_staleness` updates old. `tool_threads` is the number of threads that step
    environments, so that a slow tool delays only its own episode. With 0 it is what the environment's class says
    (`tool_threads`, as those that run boxes or processes do), else one thread steps them, one after the other.

    `step_seconds` is how long one call of an environment may take, `episode_seconds` how long all calls of an episode may take
    together (generation does not count). An episode over a limit has failed through the infrastructure, and the others go on.
    null is no limit; without both limits and threads, environments are stepped in the main thread. A tool that runs a test
    suite takes minutes, so the limits are wide: they are there for what never ends.

    With `harness`, an episode is a program of yours that talks to the policy through the gateway. It has its own loop, so
    `max_turns` does not bound it (`harness.max_requests` does).
    """

    engine: EngineConfig = TransformersEngineConfig()
    group_size: Annotated[int, Field(ge=2, le=64)] = 8
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
    harness: HarnessConfig | None = None

    @model_serializer(mode="wrap")
    def _without_harness(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A profile without a harness reads as it did before there was one, so that its results keep their names."""
        values: dict[str, Any] = dump(self)
        if values.get("harness", self) is None:
            del values["harness"]
        return values

    @property
    def lag(self) -> int:
        """The maximum age, in updates, of the policy that sampled a token that is trained on."""
        return {"sync": 0, "overlap": 1, "async": self.max_staleness}[self.mode]
