"""An environment with a prompt of its own around another environment."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, field_validator

from tracewheel import Environment, Observation, Strict, Task, kind_text, open_environment
from tracewheel_prompts.held_out import check_prompt
from tracewheel_prompts.prompt import Message, Prompt

NOT_WRAPPED = ("prompted", "recorded", "several")
# What an environment may offer beside the protocol; a check finds only what the one within has.
OPTIONAL = (
    "attacks", "families", "make_tasks", "near_misses", "opening", "outcome", "repeatable", "reply", "restore", "solution",
    "task_reached", "tasks_from", "tiers", "variants",
)  # fmt: skip


class Wrapped(Strict):
    """The environment within."""

    kind: str
    args: dict[str, Any] = Field(default_factory=dict)

    @field_validator("kind")
    @classmethod
    def _check_kind(cls, kind: str) -> str:
        if kind.partition(":")[0] in NOT_WRAPPED:
            raise ValueError(f"{kind} takes no prompt: name an environment that makes its own episodes")
        return kind


class PromptedArgs(Strict):
    """`environment`, `prompt`; any other argument, as of exploration, goes to the environment within."""

    model_config = ConfigDict(frozen=True, extra="allow")

    environment: Wrapped
    prompt: Prompt = Prompt()


class PromptedEnvironment:
    """Another environment, told and described by a prompt. States, rewards and replies are those of the one within.

    >>> args = PromptedArgs(environment={"kind": "workspace"}, prompt={"system": "Move every match."})
    >>> world = PromptedEnvironment(args)
    >>> world.kind, world.system_prompt
    ('workspace', 'Move every match.')

    The prompt is in the arguments by value: tasks, stage keys, run ids, lineage and the profile in MLflow hold it. Logs name
    the environment within, and fingerprints do not hold the prompt, so that splits stay.
    """

    verifiers: tuple[str, ...] | None = ()  # those of the environment within count
    wraps = "environment"
    Args = PromptedArgs

    def __init__(self, args: PromptedArgs) -> None:
        self.prompt = args.prompt
        self._open = ExitStack()
        text = kind_text(args.environment.kind, args.environment.args | (args.model_extra or {}))
        self.within: Environment = self._open.enter_context(open_environment(text))
        self.kind = self.within.kind
        self.verifiers = getattr(self.within, "verifiers", None)  # curation asks an environment, keys ask its class
        for name in OPTIONAL:
            if hasattr(self.within, name):
                setattr(self, name, getattr(self.within, name))

    @classmethod
    def served(cls, args: PromptedArgs) -> Callable[[list[Message], list[Message]], tuple[list[Message], list[Message]]]:
        """What `tracewheel serve` does to a program's request."""
        return args.prompt.serve

    @classmethod
    def check_curated(cls, args: PromptedArgs, curated: Path) -> None:
        """Check that the prompt holds no task outside training, as curation asks.

        Raises:
            LeakError: it does.
        """
        check_prompt(args.prompt, curated)

    @property
    def system_prompt(self) -> str:
        """The prompt's."""
        return self.prompt.said

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        return self.within.task_from_log(prompt, logged)

    def tools(self) -> list[dict[str, Any]]:
        return self.prompt.described(self.within.tools())

    def reset(self, task: Task) -> None:
        self.within.reset(task)

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        return self.within.step(tool, args)

    def snapshot(self) -> dict[str, Any]:
        return self.within.snapshot()

    def close(self) -> None:
        self._open.close()
