"""Episodes of given calls, as chat messages."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.base import TEXT_TURN, Environment, Replier


def play_calls(environment: Environment, task: Task, calls: Iterable[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Execute calls, one a turn, from the start of a task, and return the episode as OpenAI chat messages.

    A `TEXT_TURN` is said to an environment that answers it. The episode ends with the turn that ends it, whose reply is not
    logged. The environment is left in its final state.
    """
    environment.reset(task)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": environment.system_prompt},
        {"role": "user", "content": task.prompt},
    ]
    for index, (name, args) in enumerate(calls):
        if name == TEXT_TURN and isinstance(environment, Replier):
            observation = environment.reply(args["text"])
        else:
            observation = environment.step(name, args)
        messages += turn_messages(index, name, args, None if observation.done else observation.text)
        if observation.done:
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
