"""Tasks without logs: an environment's own generator, or a file of a benchmark, written as a log that nobody has answered.

Such a log goes the road of every other: `ingest`, then `curate` with its probes, duplicates, benchmark items and splits.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracewheel import ConfigError, DataError, Environment, Task, TaskMaker, open_environment, parse_kind, stored_json

# What of a task must survive being logged and read again.
KEPT = ("fingerprint", "prompt", "family", "tier", "verifier")


@dataclass(frozen=True)
class TaskSource:
    """Where tasks come from: `path`, or the environment's generator with `n` and `seed`."""

    environment: str
    path: Path | None = None
    n: int = 200
    seed: int = 0


def task_lines(source: TaskSource) -> tuple[list[str], dict[str, Any]]:
    """The tasks of a source as lines of a log in OpenAI format, and their counts by family and tier.

    Raises:
        ConfigError: the environment makes or reads no tasks.
        DataError: the file holds none, or a task does not survive being logged; the message names it.
    """
    with open_environment(source.environment) as environment:
        tasks = _tasks(environment, source)
        if not tasks:
            raise DataError(f"{source.path or source.environment}: no task; see what its loader leaves out and why")
        lines = [_line(environment, task) for task in tasks]
    return lines, {
        "tasks": len(tasks),
        "families": _counts(task.family for task in tasks),
        "tiers": _counts(task.tier for task in tasks),
    }


def _tasks(environment: Environment, source: TaskSource) -> list[Task]:
    if source.path is None:
        if not isinstance(environment, TaskMaker):
            raise ConfigError(
                f"environment '{environment.kind}' generates no tasks: it needs make_tasks(n, seed), families and tiers"
            )
        return environment.make_tasks(source.n, source.seed)
    load = getattr(environment, "tasks_from", None)
    if not callable(load):
        raise ConfigError(f"environment '{environment.kind}' reads no task files: it needs tasks_from(path)")
    if not source.path.exists():
        raise DataError(f"{source.path}: no such file or folder")
    loaded: list[Task] = load(source.path)
    return loaded


def _line(environment: Environment, task: Task) -> str:
    """A record with the request alone. Curation must make the very task of it again.

    Family and tier are logged for environments that do not read them from the goal.
    """
    logged: dict[str, Any] = {
        "kind": environment.kind,
        "initial_state": task.initial_state,
        "goal": task.goal,
        "family": task.family,
        "tier": task.tier,
    }
    again = environment.task_from_log(task.prompt, json.loads(stored_json(logged)))
    for name in KEPT:
        one, other = getattr(task, name), getattr(again, name)
        if one != other:
            raise DataError(
                f"task {task.id}: task_from_log makes another task of what is logged ({', '.join(list(logged)[1:])}), with the "
                f"{name} {other!r} instead of {one!r}"
            )
    system = [{"role": "system", "content": environment.system_prompt}] if environment.system_prompt else []
    messages = [*system, {"role": "user", "content": task.prompt}]
    return stored_json(
        {"id": task.id, "task": task.id, "messages": messages, "tools": environment.tools(), "environment": logged}
    )


def _counts(values: Iterable[Any]) -> dict[str, int]:
    return {str(value): count for value, count in sorted(Counter(values).items())}


def kind_of(text: str, args: str) -> str:
    """A kind's text from its name and its arguments as JSON.

    Raises:
        ConfigError: the arguments are no JSON object.
    """
    return parse_kind(f'{{"kind": {stored_json(text)}, "args": {args}}}').text if args else text
