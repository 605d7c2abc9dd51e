"""The workspace verifier: the selected files moved, the manifest correct, nothing else touched."""

from __future__ import annotations

import json
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.workspace.tasks import selected_files


class WorkspaceVerifier:
    """Binary reward from the final file tree.

    >>> import random
    >>> from tracewheel.environments.workspace.tasks import FAMILIES, make_task
    >>> task = make_task(list(FAMILIES)[0], 1, random.Random(0))
    >>> WorkspaceVerifier().verify(task, task.initial_state)
    (0.0, {'files_moved': 0.0, 'manifest': 0.0, 'untouched': 1.0})

    The breakdown has three parts, each 0 or 1, and the total is 1 only when all are:

    - `files_moved`: every selected file is in the destination with its text, and gone from the source.
    - `manifest`: the manifest is a JSON list of exactly the selected names, in any order, without duplicates.
    - `untouched`: every other file is unchanged, and there are no new files.

    The calls of the episode, `finish` included, do not matter.

    Raises:
        KeyError: the state has no files, or the goal lacks a part.
    """

    kind = "workspace"

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        before: dict[str, str] = task.initial_state["files"]
        after: dict[str, str] = final_state["files"]
        goal = task.goal
        names = selected_files(task.initial_state, goal)
        origins = {name: f"{goal['source']}/{name}" for name in names}
        targets = {name: f"{goal['destination']}/{name}" for name in names}
        manifest_path: str = goal["manifest"]

        moved = all(
            after.get(targets[name]) == before[origins[name]] and (origins[name] not in after or origins[name] == targets[name])
            for name in names
        )
        judged_elsewhere = {*origins.values(), *targets.values(), manifest_path}
        rest_before = {path: text for path, text in before.items() if path not in judged_elsewhere}
        rest_after = {path: text for path, text in after.items() if path not in judged_elsewhere}
        folders_kept = set(final_state.get("folders", task.initial_state["folders"])) == set(task.initial_state["folders"])

        breakdown = {
            "files_moved": float(moved),
            "manifest": float(_lists_exactly(after.get(manifest_path), names)),
            "untouched": float(rest_before == rest_after and folders_kept),
        }
        return float(all(breakdown.values())), breakdown

    def progress(self, task: Task, state: dict[str, Any]) -> float:
        """The share of files moved and manifest written, or 0 while any other file is changed.

        A correct manifest counts even before the files are moved.
        """
        before: dict[str, str] = task.initial_state["files"]
        now: dict[str, str] = state["files"]
        goal = task.goal
        names = selected_files(task.initial_state, goal)
        moved = 0
        for name in names:
            origin, target = f"{goal['source']}/{name}", f"{goal['destination']}/{name}"
            moved += now.get(target) == before[origin] and (origin not in now or origin == target)
        _, parts = self.verify(task, state)
        return parts["untouched"] * (moved + parts["manifest"]) / (len(names) + 1)


def _lists_exactly(text: str | None, names: list[str]) -> bool:
    if text is None:
        return False
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(listed, list) and all(isinstance(name, str) for name in listed) and sorted(listed) == sorted(names)
