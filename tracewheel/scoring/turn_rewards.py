"""What each turn of a stored trajectory was worth: the progress it made, found by playing it again.

With a potential that says how far a state is from the goal, the reward of a turn is the potential after
it less the one before (potential-based shaping, Ng, Harada and Russell 1999); the last turn gets what is
missing to the trajectory's total. So the rewards of the turns sum to the total, and undiscounted they
change what a turn is credited with, not which policy is best.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tracewheel.chat.hermes import ParsedCall
from tracewheel.chat.renderer import PARSERS
from tracewheel.core.errors import DataError
from tracewheel.core.types import Task, Trajectory, canonical_json
from tracewheel.environments import make_environment, opening_messages

Message = dict[str, Any]


def replay_turns(task: Task, trajectory: Trajectory, tool_format: str = "hermes") -> list[dict[str, Any]]:
    """The environment's state at the start and after each of the trajectory's N turns: N + 1 snapshots.

    The calls of each turn are carried out again, in a fresh environment, as the rollout did: a malformed
    call does nothing, and neither does a turn that ran into the token limit.

    Raises:
        DataError: messages and turns do not belong together, or the replay ends in another state than the
            trajectory did, as when the environment is not deterministic.
    """
    environment = make_environment(task.environment)
    environment.reset(task)
    # What an opening conversation called has been carried out by the reset.
    before = len(opening_messages(environment, task))
    spoken = [i for i, message in enumerate(trajectory.messages) if message["role"] == "assistant" and i >= before]
    if len(spoken) != len(trajectory.turns):
        raise DataError(f"trajectory {trajectory.id}: {len(spoken)} assistant messages for {len(trajectory.turns)} turns")
    states = [environment.snapshot()]
    done = False
    for index in spoken:
        unsaid = trajectory.stop_reason == "max_tokens" and index == len(trajectory.messages) - 1
        for name, arguments in [] if done or unsaid else _calls(trajectory.messages[index], tool_format):
            if environment.step(name, arguments).done:
                done = True
                break
        states.append(environment.snapshot())
    if canonical_json(states[-1]) != canonical_json(trajectory.final_state):
        raise DataError(f"trajectory {trajectory.id}: played again it ends in another state")
    return states


def shaped_rewards(potentials: list[float], total: float) -> list[float]:
    """The rewards of N turns from the N + 1 potentials at the start and after each; they sum to `total`.

    The potential of the last state is taken to be the total (less that of the start): what the episode
    came to, not how far it looks. Without a turn there is nobody to reward.
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
        DataError: it cannot be played again (see `replay_turns`).
    """
    return shaped_rewards([potential(state) for state in replay_turns(task, trajectory, tool_format)], total)


def _calls(message: Message, tool_format: str) -> list[tuple[str, dict[str, Any]]]:
    """The calls of an assistant message that can be carried out. One with a malformed call was kept as its raw text."""
    if message.get("tool_calls"):
        functions = [call["function"] for call in message["tool_calls"]]
        return [(function["name"], json.loads(function["arguments"])) for function in functions]
    parsed: list[ParsedCall] = PARSERS[tool_format](message.get("content") or "").calls
    return [(call.name, call.arguments) for call in parsed if not call.malformed]
