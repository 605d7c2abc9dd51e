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
            messages.append({"role": "assistant", "content": args["text"]})
            answer = environment.reply(args["text"])
            if answer.done:
                break
            messages.append({"role": "user", "content": answer.text})
            continue
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
