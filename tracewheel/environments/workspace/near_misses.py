"""Episodes of the workspace that come close to solving a task, for the audit of its verifier."""

from __future__ import annotations

import json

from tracewheel.core.types import Task
from tracewheel.environments.workspace.agent import Call, manifest_call, move_call, walk
from tracewheel.environments.workspace.tasks import MANIFEST_NAME, selected_files

FINISH: Call = ("finish", {})


def near_misses(task: Task) -> dict[str, list[Call]]:
    """Calls that almost solve the task, by what is wrong with them."""
    goal, moves = task.goal, walk(task)
    source, destination = goal["source"], goal["destination"]
    names = selected_files(task.initial_state, goal)
    held = sorted(path.removeprefix(f"{source}/") for path in task.initial_state["files"] if path.startswith(f"{source}/"))
    spared = [name for name in held if name not in names]
    manifest = manifest_call(task, names)

    def wrote(content: str, path: str = goal["manifest"]) -> list[Call]:
        return [*moves, ("write_file", {"path": path, "content": content}), FINISH]

    def unmoved(name: str) -> list[Call]:
        return [call for call in moves if call != move_call(source, name, destination)]

    listed = json.dumps(names)
    found = {
        "extra_change": [*moves, manifest, ("write_file", {"path": f"{destination}/more.txt", "content": "more"}), FINISH],
        "changed_text": [*moves, manifest, ("write_file", {"path": f"{destination}/{names[0]}", "content": "other"}), FINISH],
        "half_done": [*unmoved(names[-1]), manifest, FINISH],
        "no_manifest": [*moves, FINISH],
        "wrong_type": wrote(json.dumps(", ".join(names))),
        "wrong_form": wrote("\n".join(names)),
        "wrong_place": wrote(listed, f"{source}/{MANIFEST_NAME}"),
        "named_twice": wrote(json.dumps([*names, names[0]])),
        "one_too_few": wrote(json.dumps(names[1:])),
        "full_paths": wrote(json.dumps([f"{destination}/{name}" for name in names])),
        "told_only": [manifest, FINISH],
    }
    if spared:
        found["lists_all"] = wrote(json.dumps(held))
        found["moved_all"] = [*moves, *(move_call(source, name, destination) for name in spared), manifest, FINISH]
    return found
