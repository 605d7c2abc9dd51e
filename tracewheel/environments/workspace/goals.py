"""The workspace task that a final state solves, for hindsight demonstrations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tracewheel.core.types import Task
from tracewheel.environments.workspace.tasks import EXTENSIONS, PROMPTS, STEM_GROUPS, WORDS, selected_files, workspace_task

SELECTABLE = {"pattern": EXTENSIONS, "prefix": STEM_GROUPS, "content": WORDS}
NAMED = (
    "Move the files {value} from {source} to {destination}, then write {manifest} listing them.",
    "Please take {value} in {source} over to {destination} and record them in {manifest}.",
)


def task_reached(task: Task, final_state: dict[str, Any]) -> Task | None:
    """The task on the same files whose goal `final_state` fulfils, or None.

    Files must have moved from one folder to another, one manifest must list exactly them, and nothing else may have
    changed. The goal is a selector of the task's own family that picks exactly these files, or else lists their names.
    Other families are not considered: an episode that never read a file does not show how to find content in files.
    """
    before, after = task.initial_state["files"], final_state["files"]
    gone = {path: text for path, text in before.items() if path not in after}
    changed = {path: text for path, text in after.items() if before.get(path) != text}
    sources = {path.rpartition("/")[0] for path in gone}
    if not final_state.get("finished") or len(sources) != 1 or len(changed) != len(gone) + 1:
        return None
    (source,) = sources
    names = sorted(path.rpartition("/")[2] for path in gone)
    found = [path for path, text in changed.items() if listed_names(text) == names]
    if len(found) != 1 or found[0] in before:
        return None
    manifest = found[0]
    landed = {path: text for path, text in changed.items() if path != manifest}
    destinations = {path.rpartition("/")[0] for path in landed}
    if len(destinations) != 1:
        return None
    (destination,) = destinations
    if landed != {f"{destination}/{path.rpartition('/')[2]}": text for path, text in gone.items()}:
        return None
    for selector in _selectors(task, names):
        goal = {"selector": selector, "source": source, "destination": destination, "manifest": manifest}
        if selected_files(task.initial_state, goal) == names:
            return workspace_task(_prompt(task, goal), task.initial_state, goal) if goal != task.goal else None
    return None


def _selectors(task: Task, names: list[str]) -> Iterator[dict[str, str]]:
    for value in SELECTABLE.get(task.family, (task.goal["selector"]["value"],)):
        yield {"kind": task.family, "value": value}
    yield {"kind": "names", "value": ", ".join(names)}


def listed_names(text: str) -> list[str] | None:
    """The sorted names in a manifest; None for a text that is no JSON list of names."""
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return sorted(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None


def _prompt(task: Task, goal: dict[str, Any]) -> str:
    """Phrase the goal with the wording of the task's prompt, or with the first wording."""
    phrased = [_worded(wording, task.goal) for wording in PROMPTS[task.family]]
    wordings = NAMED if goal["selector"]["kind"] == "names" else PROMPTS[task.family]
    return _worded(wordings[phrased.index(task.prompt) if task.prompt in phrased else 0], goal)


def _worded(wording: str, goal: dict[str, Any]) -> str:
    return wording.format(
        value=goal["selector"]["value"], source=goal["source"], destination=goal["destination"], manifest=goal["manifest"]
    )
