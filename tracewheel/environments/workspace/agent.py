"""The scripted agent of the workspace: the known solution of a task. It is never shown to a policy in training."""

from __future__ import annotations

import json

from tracewheel.core.types import Task
from tracewheel.environments.workspace.tasks import LIST_PATH, selected_files

Call = tuple[str, dict[str, str]]


def solution(task: Task) -> list[Call]:
    """The calls that solve a task in the most direct way, one call a turn."""
    moved = selected_files(task.initial_state, task.goal)
    return [
        *walk(task),
        ("list_files", {"path": task.goal["destination"]}),
        manifest_call(task, moved),
        ("finish", {}),
    ]


def walk(task: Task) -> list[Call]:
    """The part of the solution that finds and moves the files."""
    source, destination = task.goal["source"], task.goal["destination"]
    moved = selected_files(task.initial_state, task.goal)
    looked_at = sorted(p.rsplit("/", 1)[1] for p in task.initial_state["files"] if p.startswith(source + "/"))
    calls: list[Call] = []
    match task.family:
        case "list":
            calls.append(("read_file", {"path": LIST_PATH}))
            listed = task.initial_state["files"][LIST_PATH].split("\n")
            calls += [move_call(source, name, destination) for name in listed]
        case "content":
            calls.append(("list_files", {"path": source}))
            for name in looked_at:
                calls.append(("read_file", {"path": f"{source}/{name}"}))
                if name in moved:
                    calls.append(move_call(source, name, destination))
        case _:
            calls.append(("list_files", {"path": source}))
            calls += [move_call(source, name, destination) for name in moved]
    return calls


def move_call(source: str, name: str, destination: str) -> Call:
    return "move_file", {"source": f"{source}/{name}", "destination": destination}


def manifest_call(task: Task, names: list[str]) -> Call:
    return "write_file", {"path": task.goal["manifest"], "content": json.dumps(sorted(names))}
