"""What an environment is: tools, a reset, a step, a snapshot.

One environment object serves one episode at a time and shares nothing with another, so the reward
of a rollout cannot depend on which rollouts ran beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tracewheel.core.types import Task


@dataclass(frozen=True)
class Observation:
    """What the policy sees after a call. `done` ends the episode; `error` marks a failed call."""

    text: str
    error: bool = False
    done: bool = False


class Environment(Protocol):
    """The world of an episode. Implementations raise nothing for what a policy may do wrong."""

    kind: str
    system_prompt: str

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        """The task behind a logged episode, so that it can be replayed and set again.

        Args:
            prompt: What the user asked for.
            logged: The log's `environment` object: the starting point and the goal.

        Raises:
            DataError: `logged` lacks something or does not hold together; the message says what.
        """
        ...

    def tools(self) -> list[dict[str, Any]]:
        """The tool schemas in OpenAI format (JSON Schema parameters)."""
        ...

    def reset(self, task: Task) -> None:
        """Start the episode of `task` from its initial state."""
        ...

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        """Carry out one call. An unknown tool or unfit arguments give an error observation."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """The state now, as JSON types; a copy that later steps do not change."""
        ...


@runtime_checkable
class VariantMaker(Environment, Protocol):
    """An environment with a task generator, which the self-evolving curriculum asks. To be one is optional."""

    def variants(self, task: Task, n: int, seed: int) -> list[Task]:
        """Up to `n` tasks of the kind of `task`, no harder than it, on other starting points.

        The same arguments give the same tasks. A fingerprint is equal only for equal tasks, as always: by it
        the curriculum keeps out what is held out.
        """
        ...


@runtime_checkable
class GoalFinder(Environment, Protocol):
    """An environment whose final states can be read as goals, for hindsight demonstrations. To be one is optional.

    Where a task asks for a fixed answer no other goal can be read from what was answered: be none then.
    """

    def task_reached(self, task: Task, final_state: dict[str, Any]) -> Task | None:
        """The task, other than `task` but from the same start, that the state solves; None where there is none."""
        ...


@runtime_checkable
class Solver(Environment, Protocol):
    """An environment that knows how its tasks are solved, for the probe of new tasks. To be one is optional.

    What it knows is for curation alone: it never enters a prompt, an observation or a reward.
    """

    def solution(self, task: Task) -> list[tuple[str, dict[str, Any]]] | None:
        """Tools and arguments that solve the task from its start; None where no solution is known."""
        ...


@runtime_checkable
class Opening(Environment, Protocol):
    """An environment whose episodes may begin in the middle of a conversation. To be one is optional."""

    def opening(self, task: Task) -> list[dict[str, Any]]:
        """The messages between the system prompt and the task's prompt, in OpenAI chat format.

        What they called has been carried out already when the episode of `task` is reset.
        """
        ...


def opening_messages(environment: Environment, task: Task) -> list[dict[str, Any]]:
    """What the policy is given first: the system prompt if there is one, the conversation so far, the task's prompt.

    To be asked for after the environment was reset for the task.
    """
    system = [{"role": "system", "content": environment.system_prompt}] if environment.system_prompt else []
    earlier = environment.opening(task) if isinstance(environment, Opening) else []
    return [*system, *earlier, {"role": "user", "content": task.prompt}]
