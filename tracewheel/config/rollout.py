"""How tasks are chosen and episodes sampled: by the policy, a model behind an endpoint, or a program with its own loop."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, Tag, model_serializer, model_validator

from tracewheel.config.base import Count, NotNegative, Positive, Share, Strict, kind_or
from tracewheel.config.placement import EngineConfig, TransformersEngineConfig


class PricesConfig(Strict):
    """Prices of a million tokens, in any currency. `cached_input` is the price of prompt tokens from the endpoint's cache."""

    input: NotNegative
    output: NotNegative
    cached_input: NotNegative | None = None

    def cost(self, prompt: int, cached: int, completion: int) -> float:
        """The cost of a reply; `prompt` includes the `cached` tokens."""
        known = self.input if self.cached_input is None else self.cached_input
        return ((prompt - cached) * self.input + cached * known + completion * self.output) / 1e6


class EndpointConfig(Strict):
    """A model behind an OpenAI-compatible endpoint.

    `/chat/completions` is appended to `endpoint`. The key is read from the environment variable `api_key_variable`; if
    that is unset, no key is sent. `concurrency` episodes are played at once. A request without an answer after `timeout`
    seconds, or with a retryable error, is repeated up to `retries` times, after the wait that the endpoint asks for. A
    wait of more than 300 seconds is an error. At most `requests_per_minute` requests and `tokens_per_minute` tokens are
    sent in any minute. `prices` give replies a cost; a command stops before the cost exceeds `budget`.

    `token_ids` asks the endpoint for token ids and log-probabilities, which vLLM's server returns. They are taken before
    the temperature is applied, unless `processed_logprobs` is set (vLLM's `--logprobs-mode processed_logprobs`). `extra`
    holds further fields of the request body; null removes a field. The profile's `rollout` bounds the number of turns.
    """

    # Settings that do not influence what the model replies.
    HOW_ASKED: ClassVar = {
        "concurrency",
        "timeout",
        "retries",
        "api_key_variable",
        "requests_per_minute",
        "tokens_per_minute",
        "prices",
        "budget",
    }

    endpoint: Annotated[str, Field(pattern=r"^https?://")]
    model: Annotated[str, Field(min_length=1)]
    api_key_variable: str = "OPENAI_API_KEY"
    temperature: NotNegative = 1.0
    max_turn_tokens: Count = 1024
    concurrency: Count = 8
    timeout: Positive = 60.0
    retries: Annotated[int, Field(ge=0)] = 4
    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    prices: PricesConfig | None = None
    budget: Positive | None = None
    token_ids: bool = False
    processed_logprobs: bool = False
    extra: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_budget_and_extra(self) -> EndpointConfig:
        if self.budget is not None and self.prices is None:
            raise ValueError("a budget needs prices: set prices.input and prices.output")
        for name in ("model", "messages", "tools", "stream", "n"):
            if self.extra.get(name) is not None:
                raise ValueError(f"extra.{name}: set by Tracewheel, which asks for one whole reply")
        return self


class TeacherConfig(EndpointConfig):
    """A teacher behind an endpoint, which plays each training task `samples` times (`tracewheel teach`).

    The profile's `rollout` bounds the length of a demonstration.
    """

    samples: Count = 4


# Variables that a program is given by the harness itself.
OWN_VARIABLES = frozenset({"OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "TMPDIR"})
OWN_VARIABLES |= {"GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"}
OWN_PREFIX = "TRACEWHEEL_"
PYTHONS = ("python", "python3")


class HarnessConfig(Strict):
    """A program that is an agent, started once for each episode.

    `command` is run in the folder `cwd` (null: where Tracewheel was started); `python` as its first word is the interpreter
    that runs Tracewheel, any other name is looked up on the PATH. The program gets a few harmless variables of our
    environment, those that `pass_env` names, those in `env`, and the base URLs and keys of its episode. `files` are texts by
    their names, written for each episode. In `command`, `env` and `files` stand for an episode's own: {prompt}, {model},
    {openai_url}, {anthropic_url}, {gemini_url}, {mcp_url}, {key}, {config} (the folder of `files`) and {workdir} (an empty
    folder, which `cwd` may be as well). `code` names the files
    and folders that the program is made of, by default the files that the command names: a change in them is a change of the
    profile.

    `task_on`: where the program finds its task, as JSON: on its standard input, in a file (`TRACEWHEEL_TASK_FILE`) or in a
    variable (`TRACEWHEEL_TASK`). `tools`: how the episode's environment is served beside it, over HTTP or MCP; with `none` the
    program has its own tools, no environment is made, and verifiers see only what the program says; where it is told
    {workdir}, this holds the task's `initial_state.files` at the start, and the final state's `files` are what it leaves there.

    Requests for embeddings are passed on to the endpoint `embeddings`, for its model.

    `concurrency` programs run at once, each for at most `seconds`, with at most `max_requests` requests to the model and
    `memory_mb` of memory. Of what it prints the last 64 KiB are kept. With `sandbox: auto` it runs in a box of bubblewrap where
    the machine has it: the system, the program and its `code` are there read-only, its episode's folder to write, and no
    network but the gateway. With `preload`,
    Python modules are imported once, and each program starts as a fork of that process: it saves an agent on a large SDK most
    of its start.

    `credit`: which of an episode's turns its reward reaches: all; those that the last turn had read; those kept, whose text
    reached the last context, also by way of summaries that the program accepted; or by agent. By default `auto`: those kept
    where the program compacted its history, else all.
    """

    command: Annotated[tuple[str, ...], Field(min_length=1)]
    cwd: str | None = None
    env: dict[str, str] = Field(default={})
    files: dict[str, str] = Field(default={})
    pass_env: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    task_on: Literal["stdin", "file", "env"] = "stdin"
    tools: Literal["none", "http", "mcp"] = "http"
    credit: Literal["auto", "all", "last", "kept", "per_agent"] = "auto"
    embeddings: EndpointConfig | None = None
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 64
    seconds: Positive = 600.0
    max_requests: Count = 200
    memory_mb: Count | None = None
    sandbox: Literal["auto", "none"] = "auto"
    preload: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> HarnessConfig:
        if own := sorted(name for name in [*self.env, *self.pass_env] if name in OWN_VARIABLES or name.startswith(OWN_PREFIX)):
            raise ValueError(f"env and pass_env cannot set {', '.join(own)}: the harness does, for each episode")
        if bad := sorted(name for name in [*self.env, *self.pass_env] if not name or "=" in name or "\0" in name):
            raise ValueError(f"env and pass_env: {bad[0]!r} is no name of a variable")
        if bad := sorted(name for name in self.files if name.startswith("/") or not name or {"..", ""} & set(name.split("/"))):
            raise ValueError(f"files: {bad[0]!r} is no path within the folder of an episode")
        if any("\0" in text for text in [*self.command, *self.env.values()]):
            raise ValueError("command and env cannot hold NUL characters")
        if self.preload and not self.python_program:
            raise ValueError(
                "preload forks a Python process: it needs a command as [python, FILE.py, ...] or [python, -m, MODULE, ...]"
            )
        return self

    @property
    def python_program(self) -> bool:
        """Whether the command is an interpreter of Python with a script or a module, and no options before it."""
        name = self.command[0].rpartition("/")[2]
        if not name.startswith("python") or len(self.command) < 2:
            return False
        return len(self.command) > 2 if self.command[1] == "-m" else not self.command[1].startswith("-")


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

    `mode`: `sync` samples an iteration, then updates; in `async`, `workers` sample all the time and switch to each new
    policy, and no token that is trained on was sampled by a policy more than `max_staleness` updates old. `tool_threads` is
    the number of threads that step environments, so that a slow tool delays only its own episode. With 0 it is what the
    environment's class says (`tool_threads`, 0 where calls take no time), else as many as the engine's slots. With 1, calls are
    made in order, one after the other.

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
    mode: Literal["sync", "async"] = "sync"
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
        return self.max_staleness if self.mode == "async" else 0


class SamplerConfig(Strict):
    """Sampling of tasks by each task's Beta posterior of success.

    `difficulty` favours tasks solved less often than `target`; `learnability` weights by p(1-p); `uniform` ignores the
    posterior; `self_evolving` weights as `difficulty` does and adds variants of tasks that keep failing. `pooling` is the
    number of attempts that the success of a task's family and tier counts for each of their tasks, 0 for none: with it a
    few rollouts of a family say which of its untried tasks to prefer.
    """

    kind: Literal["difficulty", "learnability", "uniform", "self_evolving"] = "difficulty"
    target: Share = 0.6
    pooling: Annotated[float, Field(ge=0.0)] = 0.0
