"""Episodes of given calls, as chat messages."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.base import Environment


def play_calls(environment: Environment, task: Task, calls: Iterable[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Execute calls, one a turn, from the start of a task, and return the episode as OpenAI chat messages.

    The episode ends with the call that ends it, whose reply is not logged. The environment is left in its final state.
    """
    environment.reset(task)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": environment.system_prompt},
        {"role": "user", "content": task.prompt},
    ]
    for index, (name, args) in enumerate(calls):
        call_id = f"call_{index}"
        function = {"name": name, "arguments": json.dumps(args)}
        messages.append(
            {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "type": "function", "function": function}]}
        )
        observation = environment.step(name, args)
        if observation.done:
            break
        messages.append({"role": "tool", "tool_call_id": call_id, "name": name, "content": observation.text})
    return messages
