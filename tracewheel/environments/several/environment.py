"""Several environments in one profile: each logged episode goes to the one that it names, and each task names its own."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

from pydantic import Field, field_validator

from tracewheel.config.base import KindConfig, Strict
from tracewheel.core.errors import ConfigError, DataError
from tracewheel.core.kinds import parse_kind
from tracewheel.core.types import Task
from tracewheel.environments.base import Environment, Observation, Solver
from tracewheel.environments.recorded.environment import PREFIX as RECORDED
from tracewheel.environments.running import close_environment, share_resources


class SeveralArgs(Strict):
    """The environments, each with its arguments; no kind twice, and no recording."""

    members: Annotated[tuple[KindConfig, ...], Field(min_length=2)]

    @field_validator("members")
    @classmethod
    def _check_kinds(cls, members: tuple[KindConfig, ...]) -> tuple[KindConfig, ...]:
        kinds = [member.kind for member in members]
        if twice := sorted({kind for kind in kinds if kinds.count(kind) > 1}):
            raise ValueError(f"{twice[0]} is named twice: a logged episode names its environment by kind alone")
        for kind in kinds:
            if kind.startswith(RECORDED) or kind in (RECORDED.rstrip(":"), SeveralEnvironments.kind):
                raise ValueError(f"{kind} cannot be one of several environments: train on it alone")
        return members


class SeveralEnvironments:
    """Environments of one profile: its logs, its tasks, and its training batches are of all of them.

    >>> several = SeveralEnvironments(SeveralArgs(members=({"kind": "workspace"}, {"kind": "order_desk"})))
    >>> several.member("order_desk").kind
    'order_desk'

    A task names the member that it belongs to, so that its episodes have that member's system prompt and tools. The tools of
    this environment are those of all members, for what looks at a run as a whole.
    """

    kind = "several"
    verifiers = ()  # its members' count
    system_prompt = ""
    Args = SeveralArgs

    def __init__(self, args: SeveralArgs) -> None:
        # The room's door imports this module.
        make_environment = importlib.import_module("tracewheel.environments").make_environment
        self._specs = {member.kind: member.spec for member in args.members}
        self._members: dict[str, Environment] = {kind: make_environment(spec) for kind, spec in self._specs.items()}
        self._shared: set[str] = set()
        self._playing: Environment | None = None

    def member(self, kind: str) -> Environment | None:
        """The member of a kind, with what its episodes share; None if there is none."""
        found = self._members.get(kind)
        if found is not None and kind not in self._shared:
            share_resources(found, self._specs[kind])
            self._shared.add(kind)
        return found

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        found = self.member(str(logged.get("kind")))
        if found is None:
            raise DataError(f"another environment: {logged.get('kind')} is none of {', '.join(self._members)}")
        return found.task_from_log(prompt, logged)

    def solution(self, task: Task) -> list[tuple[str, dict[str, Any]]] | None:
        """The known solution, where the task's environment knows one."""
        found = self._of(task)
        return found.solution(task) if isinstance(found, Solver) else None

    def tools(self) -> list[dict[str, Any]]:
        by_name = {tool["function"]["name"]: tool for member in self._members.values() for tool in member.tools()}
        return list(by_name.values())

    def reset(self, task: Task) -> None:
        self._playing = self._of(task)
        self._playing.reset(task)

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        return self._now.step(tool, args)

    def snapshot(self) -> dict[str, Any]:
        return self._now.snapshot()

    def close(self) -> None:
        for member in self._members.values():
            close_environment(member)

    @property
    def _now(self) -> Environment:
        if self._playing is None:
            raise DataError("no episode has begun: reset first")
        return self._playing

    def _of(self, task: Task) -> Environment:
        found = self.member(parse_kind(task.environment).kind)
        if found is None:
            raise ConfigError(
                f"task {task.id} is of environment {task.environment}, which is none of {', '.join(self._members)}"
            )
        return found
