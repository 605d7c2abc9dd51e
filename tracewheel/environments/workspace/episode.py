"""Episodes of given calls in the workspace, as chat messages."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.workspace.agent import Call
from tracewheel.environments.workspace.environment import WorkspaceEnvironment


def play(task: Task, calls: Iterable[Call]) -> list[dict[str, Any]]:
    """Execute calls, one a turn, in a fresh workspace, and return the episode as OpenAI chat messages.

    The episode ends with `finish`, whose reply is not logged.
    """
    environment = WorkspaceEnvironment()
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
