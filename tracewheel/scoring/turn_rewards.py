"""Turn rewards: the progress that each turn of a stored trajectory made, found by replaying it.

The reward of a turn is the potential of the state after it minus the one before (potential-based shaping; Ng, Harada and
Russell 1999). The last turn gets the difference to the trajectory's total, so that the rewards sum to the total.
Undiscounted, they change the credit of turns but not which policy is optimal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from tracewheel.chat.formats import AUTO, WELL_FORMED, make_format
from tracewheel.core.errors import DataError
from tracewheel.core.types import Task, Trajectory, canonical_json
from tracewheel.environments import Environment, Observation, Replier, open_environment, opening_messages, repeats_replies

Message = dict[str, Any]


def replay_turns(task: Task, trajectory: Trajectory, tool_format: str = "hermes") -> list[dict[str, Any]]:
    """The environment's state at the start and after each of the trajectory's N turns: N + 1 snapshots.

    The calls of each turn are executed in a fresh environment, as in the rollout: malformed calls and turns that hit the
    token limit do nothing. A turn without a call is told to an environment that answers those, unless its answers differ
    from time to time.

    Raises:
        DataError: the numbers of assistant messages and turns differ, or the replay ends in another state than the
            trajectory, for instance because the environment is not deterministic.
    """
    with open_environment(task.environment) as environment:
        return _states(environment, task, trajectory, tool_format)


def _states(environment: Environment, task: Task, trajectory: Trajectory, tool_format: str) -> list[dict[str, Any]]:
    environment.reset(task)
    # The reset has already applied the calls of an opening conversation.
    before = len(opening_messages(environment, task))
    own = [i for i, message in enumerate(trajectory.messages) if message["role"] == "assistant" and i >= before]
    if len(own) != len(trajectory.turns):
        raise DataError(f"trajectory {trajectory.id}: {len(own)} assistant messages for {len(trajectory.turns)} turns")
    states = [environment.snapshot()]
    done = False
    for index, turn in zip(own, trajectory.turns, strict=True):
        truncated = trajectory.stop_reason == "max_tokens" and index == len(trajectory.messages) - 1
        if not done and not truncated:
            observations = _repeated(environment, trajectory.messages[index], turn["calls"], tool_format)
            done = any(observation.done or observation.fault for observation in observations)
        states.append(environment.snapshot())
    if canonical_json(states[-1]) != canonical_json(trajectory.final_state):
        raise DataError(f"trajectory {trajectory.id}: its replay ends in another state")
    return states


def shaped_rewards(potentials: list[float], total: float) -> list[float]:
    """The rewards of N turns, from the N + 1 potentials at the start and after each turn; they sum to `total`.

    The last turn gets the rest of the total, whatever the potential of the final state. Without turns there are no rewards.
    """
    if len(potentials) < 2:
        return []
    steps = [after - before for before, after in pairwise(potentials[:-1])]
    return [*steps, total - (potentials[-2] - potentials[0])]


def turn_rewards(
    task: Task,
    trajectory: Trajectory,
    potential: Callable[[dict[str, Any]], float],
    total: float,
    tool_format: str = "hermes",
) -> list[float]:
    """The reward of each turn of a trajectory, under a potential of its states.

    Raises:
        DataError: it cannot be replayed (see `replay_turns`).
    """
    return shaped_rewards([potential(state) for state in replay_turns(task, trajectory, tool_format)], total)


def _repeated(environment: Environment, message: Message, calls: int, tool_format: str) -> Iterator[Observation]:
    """Carry out a turn again, call by call; without any call, the environment answers its words."""
    if calls:
        yield from (environment.step(name, arguments) for name, arguments in _calls(message, tool_format))
    elif isinstance(environment, Replier) and repeats_replies(environment):
        yield environment.reply(message.get("content") or "")


def _calls(message: Message, tool_format: str) -> list[tuple[str, dict[str, Any]]]:
    """The well-formed calls of an assistant message.

    A message with a malformed call was stored as raw text, with the well-formed ones beside it under `WELL_FORMED`;
    before that key existed it had the text alone.
    """
    if message.get("tool_calls"):
        functions = [call["function"] for call in message["tool_calls"]]
        return [(function["name"], json.loads(function["arguments"])) for function in functions]
    if WELL_FORMED in message:
        return [(name, arguments) for name, arguments in message[WELL_FORMED]]
    parsed = make_format("hermes" if tool_format == AUTO else tool_format).parse(message.get("content") or "").calls
    return [(call.name, call.arguments) for call in parsed if not call.malformed]
