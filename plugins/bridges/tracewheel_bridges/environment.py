"""Environments `openenv` and `verifiers`: those projects' own code, in a process of their own Python for each episode."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tracewheel import BridgeFailure, DataError, Observation, Task, content_hash
from tracewheel_bridges.process import BridgeProcess

VERDICT = "verdict"


class BridgeArgs(BaseModel):
    """Where the other project runs.

    Attributes:
        python: The Python of the environment in which it is installed.
        folder: Where it runs; modules are found there too.
        env: Variables beside ours.
        start_seconds: How long the start of an episode may take, the imports included.
        step_seconds: How long anything else may take.
        system_prompt: What the agent is told first, where the task says nothing itself.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    python: str
    folder: str | None = None
    env: dict[str, str] = {}
    start_seconds: float = Field(120.0, gt=0)
    step_seconds: float = Field(60.0, gt=0)
    system_prompt: str = ""


class BridgedEnvironment:
    """What all bridges share. The other project's verdict is in the final state, for the verifier `verdict`."""

    kind: ClassVar[str]
    BRIDGE: ClassVar[str]
    reaches = True
    tool_threads = 8  # each episode is a process of its own

    def __init__(self, args: Any) -> None:
        self._args: BridgeArgs = args
        self.system_prompt = args.system_prompt
        self._process: BridgeProcess | None = None
        self._tools: list[dict[str, Any]] = []
        self._ended: dict[str, Any] | None = None

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        start = logged.get("initial_state") or {}
        if not isinstance(start, dict):
            raise DataError("'initial_state' is to be an object")
        return self._task(prompt, start, str(logged.get("family") or self.kind))

    def tools(self) -> list[dict[str, Any]]:
        """The tools of the episode; before `reset` none is known, for nothing runs."""
        return self._tools

    def reset(self, task: Task) -> None:
        """Start a process and an episode in it.

        Raises:
            BridgeFailure: the project cannot be started, or raised.
        """
        self.close()
        self._tools, self._ended = [], None
        self._process = self._start()
        opened = self._process.ask("open", self._args.start_seconds, args=self._own_args(), start=task.initial_state)
        self._tools = opened["tools"]
        self.system_prompt = "\n\n".join(
            text for text in (opened["system"] or self._args.system_prompt, opened["text"]) if text
        )

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        return self._observe("step", tool=tool, args=args)

    def snapshot(self) -> dict[str, Any]:
        """The project's state and verdict. The first call ends the episode there."""
        if self._ended is None:
            self._ended = self._running().ask("close", self._args.step_seconds)
            self.close()
        return self._ended

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()
        self._process = None

    def _observe(self, do: str, **request: Any) -> Observation:
        try:
            answer = self._running().ask(do, self._args.step_seconds, **request)
        except BridgeFailure as failure:
            return Observation(str(failure), error=True, fault="environment")
        return Observation(answer["text"], error=bool(answer.get("error")), done=bool(answer.get("done")))

    def _start(self) -> BridgeProcess:
        return BridgeProcess(self._args.python, self.BRIDGE, self._args.folder, self._args.env)

    def _running(self) -> BridgeProcess:
        if self._process is None:
            raise BridgeFailure("no process runs: `reset` has not been called, it failed, or the episode is over")
        return self._process

    def _own_args(self) -> dict[str, Any]:
        return self._args.model_dump(exclude=set(BridgeArgs.model_fields))

    def _task(self, prompt: str, start: dict[str, Any], family: str) -> Task:
        name = content_hash([self.kind, self._own_args(), prompt, start])
        return Task(
            id=f"{self.kind}-{name}",
            environment=self.kind,
            family=family,
            tier=1,
            prompt=prompt,
            initial_state=start,
            goal={},
            verifier=VERDICT,
            fingerprint=name,
        )


class OpenEnvEnvironment(BridgedEnvironment):
    """An OpenEnv environment, in process or by URL.

    ```yaml
    environment:
      kind: openenv
      args:
        python: .venv-openenv/bin/python
        environment: grid_world_env.server.grid_world_environment:GridWorldEnvironment
        action: grid_world_env.models:GridWorldAction
    ```

    An environment with MCP tools offers these; the fields of another's action are the arguments of the tool `act`. A task's
    `initial_state` holds the arguments of `reset`. The first observation stands under the system prompt. The verdict's reward
    is the last one that the environment gave; `parts` have it as `last`, and `sum`.
    """

    class Args(BridgeArgs):
        """`environment` (`module:Class`) with its `arguments` and its `action`, or the `url` of a server."""

        environment: str = ""
        action: str = ""
        arguments: dict[str, Any] = {}
        url: str = ""

        @model_validator(mode="after")
        def _one(self) -> Self:
            if bool(self.environment) == bool(self.url):
                raise ValueError("give either 'environment' (module:Class, in process) or 'url' (a server that runs)")
            return self

    kind = "openenv"
    verifiers = ("verdict",)
    BRIDGE = "openenv"


class VerifiersEnvironment(BridgedEnvironment):
    """A task of a verifiers v1 taskset; its tools are the episode's, and its rewards the verdict.

    ```yaml
    environment:
      kind: verifiers
      args: {python: .venv-verifiers/bin/python, taskset: "glossary.taskset:GlossaryTaskset"}
    ```

    A task's `initial_state` is `{"index": place in the taskset}`: its answer stays in the other process. The agent's first turn
    without a call is its answer and ends the episode. Rewards that need a runtime, such as a container, are not computed.
    """

    class Args(BridgeArgs):
        """`taskset` (`module:Class`) and its `config`."""

        taskset: str
        config: dict[str, Any] = {}

    kind = "verifiers"
    verifiers = ("verdict",)
    BRIDGE = "verifiers"

    def reply(self, text: str) -> Observation:
        """The answer, which ends the episode."""
        return self._observe("reply", text=text)

    def tasks(self, count: int) -> list[Task]:
        """The first `count` tasks of the taskset.

        Raises:
            BridgeFailure: the project cannot be started, or raised.
        """
        process = self._start()
        try:
            found = process.ask("tasks", self._args.start_seconds, args=self._own_args(), count=count)
        finally:
            process.close()
        return [self._task(one["prompt"], one["start"], self.kind) for one in found]
