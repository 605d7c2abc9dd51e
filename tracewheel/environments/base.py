"""The protocol of environments: tools, reset, step, snapshot.

An environment object serves one episode at a time and shares nothing with other objects, so the reward of a rollout cannot
depend on concurrent rollouts.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.core.strict_json import fresh_copy
from tracewheel.core.types import Fault, Task

# In a list of calls, as of a known solution: what the agent says without a call, as {"text": ...}.
TEXT_TURN = "(text)"


@dataclass(frozen=True)
class Observation:
    """The reply to a call, or to what the agent said. `done` ends the episode; `error` marks a failed call.

    `reward` is a process reward: a finite number, or None. Those of a turn's calls are added up and credited to that turn,
    on top of what the verifier gives for the end (see `rubric.process_weight`). So return no reward here for what the
    verifier already rewards.

    `fault` ends the episode and says who is to blame; `text` then says what went wrong. With `model` or `harness` the episode
    is scored as it stands; any other is no fault of the policy, and leaves it without a score.
    """

    text: str
    error: bool = False
    done: bool = False
    reward: float | None = None
    fault: Fault = ""


@dataclass(frozen=True)
class Refusal(Observation):
    """The answer to a call that no tool has taken, or that raised. A log has it in other words; `why` says what it is."""

    why: str = field(default="", kw_only=True)


class ToolError(Exception):
    """Raised by a `step` for the tool's answer to a call that cannot be done: the policy reads `error: ` and this text."""


EXCEPTIONS = ("observation", "failure")  # what a class's `exceptions` may be


class Environment(Protocol):
    """The world of an episode.

    What `step` raises at a valid call is the tool's answer (`ToolError`; `OSError`, `KeyError` and `ValueError` of the author's
    code), or the episode has failed. A class may say `exceptions = "observation"` (all are answers) or `"failure"` (only
    `ToolError` is). `docs/your-environment.md` has the contract.

    A class may name the verifiers of its tasks, as `verifiers = ("exact_match",)`: a change of another then voids no result.
    """

    kind: str
    system_prompt: str

    def task_from_log(self, prompt: str, logged: dict[str, Any]) -> Task:
        """The task of a logged episode, for replays and new rollouts.

        Args:
            prompt: The user's request.
            logged: The log's `environment` object: starting point and goal.

        Raises:
            DataError: `logged` is incomplete or inconsistent; the message says how.
        """
        ...

    def tools(self) -> list[dict[str, Any]]:
        """The tool schemas in OpenAI format (JSON Schema parameters)."""
        ...

    def reset(self, task: Task) -> None:
        """Start an episode of `task` from its initial state."""
        ...

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        """Execute one call. Of a class of a user's own, calls of other tools or against their schemas never come here."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """A copy of the current state, as JSON types."""
        ...


@runtime_checkable
class Replier(Environment, Protocol):
    """Optional protocol: an environment that answers what the agent says, as a user or a form would.

    Without it, a turn without a call ends the episode. An environment that may answer the same words otherwise another time,
    as a model would, says so with `repeatable = False`: then replays of an episode do not ask it again.
    """

    def reply(self, text: str) -> Observation:
        """The answer to a turn without a call: its text is the user's next message, and `done` ends the episode."""
        ...


@runtime_checkable
class VariantMaker(Environment, Protocol):
    """Optional protocol: an environment with a task generator, for the self-evolving curriculum."""

    def variants(self, task: Task, n: int, seed: int) -> list[Task]:
        """Up to `n` tasks similar to `task`, no harder, with other starting points.

        The same arguments give the same tasks. The curriculum excludes held-out tasks by their fingerprints, so only equal
        tasks may share one.
        """
        ...


@runtime_checkable
class GoalFinder(Environment, Protocol):
    """Optional protocol: an environment that can read a goal from a final state, for hindsight demonstrations.

    Do not implement it where tasks ask for a fixed answer: a wrong answer is no solution of another task.
    """

    def task_reached(self, task: Task, final_state: dict[str, Any]) -> Task | None:
        """Another task with the same start that the state solves, or None."""
        ...


@runtime_checkable
class Solver(Environment, Protocol):
    """Optional protocol: an environment that knows solutions of its tasks, for the probes of new tasks.

    Solutions are for curation alone and never enter a prompt, an observation or a reward.
    """

    def solution(self, task: Task) -> list[tuple[str, dict[str, Any]]] | None:
        """Calls, as (tool, arguments), that solve the task from its start; None where no solution is known.

        A turn without a call, which a `Replier` answers, is the tool `TEXT_TURN` with `{"text": ...}`.
        """
        ...


@runtime_checkable
class TaskMaker(Environment, Protocol):
    """Optional protocol: an environment that generates tasks, as for a benchmark of its own or an audit of its verifier.

    Attributes:
        families: The task families.
        tiers: The tiers of difficulty, easiest first.
    """

    families: tuple[str, ...]
    tiers: tuple[int, ...]

    def make_tasks(self, n: int, seed: int) -> list[Task]:
        """`n` tasks with different fingerprints, spread evenly over all families and tiers.

        The same arguments give the same tasks, in any process.

        Raises:
            ConfigError: there are not that many different tasks.
        """
        ...


@runtime_checkable
class Restorable(Environment, Protocol):
    """Optional protocol: an environment that goes on from a snapshot, as if the episode had never stopped."""

    def restore(self, task: Task, state: dict[str, Any]) -> None:
        """Continue an episode of `task` in the state that `snapshot` returned, perhaps in another process.

        Raises:
            DataError: `state` is no snapshot of such an episode.
        """
        ...


@runtime_checkable
class NearMisser(Solver, Protocol):
    """Optional protocol: an environment that knows ways to almost solve a task, for the audit of its verifier."""

    def near_misses(self, task: Task) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Calls that come close to solving the task and must not count as solving it, by what is wrong with them.

        As in `extra_change` (right, with one change too many), `wrong_type`, `wrong_place`, `half_done`. Only those that make
        sense for the task.
        """
        ...


@runtime_checkable
class Attackable(Solver, Protocol):
    """Optional protocol: an environment that knows how an agent may cheat in it, for the audit of its verifier."""

    def attacks(self, task: Task) -> dict[str, list[tuple[str, dict[str, Any]]]]:
        """Calls of cheating agents, by what they try. None may count as solving the task."""
        ...


@runtime_checkable
class OutcomeTeller(Environment, Protocol):
    """Optional protocol: an environment that tells which final states are alike, for the audit of its verifier."""

    def outcome(self, task: Task, state: dict[str, Any]) -> Any:
        """What of a final state counts, as JSON: states of one outcome solve the task alike, whatever led to them.

        It says nothing about what solves the task, and uses no verifier.
        """
        ...


@runtime_checkable
class OpeningProvider(Environment, Protocol):
    """Optional protocol: an environment whose episodes may begin in the middle of a conversation."""

    def opening(self, task: Task) -> list[dict[str, Any]]:
        """The messages between the system prompt and the task's prompt, in OpenAI chat format.

        `reset` has already applied the effects of their calls.
        """
        ...


def opening_of(environment: Environment, task: Task) -> list[dict[str, Any]]:
    """The messages between the system prompt and the task's prompt; none unless the environment provides some."""
    return environment.opening(task) if isinstance(environment, OpeningProvider) else []


def opening_messages(environment: Environment, task: Task) -> list[dict[str, Any]]:
    """The first messages of an episode: the system prompt if any, the opening conversation if any, the task's prompt.

    The environment must have been reset for the task.
    """
    system = [{"role": "system", "content": environment.system_prompt}] if environment.system_prompt else []
    return [*system, *opening_of(environment, task), {"role": "user", "content": task.prompt}]


def repeats_replies(environment: Environment) -> bool:
    """Whether a replay of an episode may ask the environment again for its answers to turns without a call."""
    return isinstance(environment, Replier) and bool(getattr(environment, "repeatable", True))


def repeat(environment: Environment, tool: str, args: dict[str, Any]) -> Observation:
    """Carry out a call of a known episode again, or a `TEXT_TURN`, which only a `Replier` answers."""
    if tool != TEXT_TURN:
        return environment.step(tool, args)
    if isinstance(environment, Replier) and repeats_replies(environment):
        return environment.reply(str(args.get("text", "")))
    return Observation("")


def function_tool(name: str, description: str, properties: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A tool as a chat template takes it. All properties, JSON schemas by name, are required."""
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": properties, "required": list(properties)},
        },
    }


class ToolFailure(InfrastructureError):
    """A tool's server crashed, hung or broke its protocol; the episode has no score."""

    fault: Fault = "tool"


class BridgeFailure(InfrastructureError):
    """Another project's environment crashed, hung or raised; the episode has no score."""

    fault: Fault = "environment"


def play_calls(environment: Environment, task: Task, calls: Iterable[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Execute calls, one a turn, from the start of a task, and return the episode as OpenAI chat messages.

    A `TEXT_TURN` is said to an environment that answers it. The episode ends with the turn that ends it, whose reply is not
    logged. The environment is left in its final state.
    """
    environment.reset(task)
    messages = opening_messages(environment, task)
    for number, (name, args) in enumerate(calls):
        observation = repeat(environment, name, fresh_copy(args))
        ended = observation.done or bool(observation.fault)
        messages += turn_messages(number, name, args, None if ended else observation.text)
        if ended:
            break
    return messages


def turn_messages(number: int, tool: str, args: dict[str, Any], reply: str | None) -> list[dict[str, Any]]:
    """The messages of a turn: a call, or the words of a `TEXT_TURN`; and the reply, where there is one."""
    if tool == TEXT_TURN:
        said = {"role": "assistant", "content": args["text"]}
        return [said, {"role": "user", "content": reply}] if reply else [said]
    call_id = f"call_{number}"
    call = {"id": call_id, "type": "function", "function": {"name": tool, "arguments": json.dumps(args)}}
    messages: list[dict[str, Any]] = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    if reply is not None:
        messages.append({"role": "tool", "tool_call_id": call_id, "name": tool, "content": reply})
    return messages


# So many draws in a row that give no new task of any family and tier, and the generator counts as exhausted.
DRAWS = 50


def spread_tasks(
    make: Callable[[str, int, random.Random], Task | None], families: Sequence[str], tiers: Sequence[int], n: int, seed: int
) -> list[Task]:
    """`n` tasks with different fingerprints, in turn of each family and tier.

    A family and tier that has no more different tasks is passed over.

    Args:
        make: A random task of a family and tier; None where there is none.
        families: The families.
        tiers: The tiers.
        n: How many.
        seed: The same seed gives the same tasks.

    Raises:
        ConfigError: there are not that many different tasks.
    """
    rng, seen, tasks = random.Random(f"tasks-{seed}"), set[str](), list[Task]()
    rows, columns = len(families), len(tiers)
    # Along the diagonals, so that the first few tasks already have every family and every tier.
    open_strata = [
        (families[number % rows], tiers[(number + number // math.lcm(rows, columns)) % columns])
        for number in range(rows * columns)
    ]
    while open_strata and len(tasks) < n:
        for stratum in open_strata[: n - len(tasks)]:
            drawn = (make(*stratum, rng) for _ in itertools.repeat(None, DRAWS))
            task = next((task for task in drawn if task is not None and task.fingerprint not in seen), None)
            if task is None:
                open_strata.remove(stratum)
                continue
            seen.add(task.fingerprint)
            tasks.append(task)
    if len(tasks) < n:
        raise ConfigError(f"{n} tasks are wanted, and the generator found {len(tasks)} different ones: ask for fewer")
    return tasks
