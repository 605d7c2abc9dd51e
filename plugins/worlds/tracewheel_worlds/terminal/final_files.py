"""The files at the end: those asked for are as asked, and all others as they were."""

from __future__ import annotations

from typing import Any

from tracewheel import Task
from tracewheel_worlds.box_state import PLAIN, box_file, stored_file
from tracewheel_worlds.findings import odd_findings, tried_to_escape
from tracewheel_worlds.sandbox import BoxFile


class FinalFilesVerifier:
    """Binary reward from the final files.

    >>> goal = {"family": "sum", "tier": 1, "files": {"total.txt": {"text": "42"}}}
    >>> task = Task("t1", "terminal", "sum", 1, "Sum up.", {"files": {"a.csv": "40"}}, goal, "final_files", "t1")
    >>> FinalFilesVerifier().verify(task, {"files": {"a.csv": "40", "total.txt": "42"}, "findings": []})
    (1.0, {'asked': 1.0, 'untouched': 1.0, 'flagged': 0.0})

    The breakdown, of which the total is 1 where the first two are, and no command tried to leave its box:

    - `asked`: each file that the goal names is as it says (see `terminal/goals.py`).
    - `untouched`: every other file is as it was, with its permissions, and there are no new ones. Empty folders do not count.
    - `flagged`: whether a command tried to leave its box, used it up, or left a link out of it.

    Nothing is run: the files are read here as data.

    Raises:
        KeyError, ValueError: the state has no files, or the goal none.
    """

    kind = "final_files"

    def verify(self, task: Task, final_state: dict[str, Any]) -> tuple[float, dict[str, float]]:
        asked, untouched = _compared(task, final_state)
        parts = {"asked": float(all(asked)), "untouched": float(untouched)}
        odd = odd_findings(final_state)
        return float(all(parts.values()) and not tried_to_escape(odd)), {**parts, "flagged": float(bool(odd))}

    def progress(self, task: Task, state: dict[str, Any]) -> float:
        """The share of the files asked for that are as asked; 0 once another is changed."""
        asked, untouched = _compared(task, state)
        return untouched * sum(asked) / len(asked)


def _compared(task: Task, state: dict[str, Any]) -> tuple[list[bool], bool]:
    wanted = task.goal["files"]
    if not wanted:
        raise ValueError("the goal names no files")
    after = {path: box_file(file) for path, file in state["files"].items()}
    before = {path: box_file(file) for path, file in task.initial_state["files"].items()}
    asked = [_is_as_asked(one, after.get(path)) for path, one in wanted.items()]
    rest = [{path: file for path, file in files.items() if path not in wanted and not file.folder} for files in (before, after)]
    return asked, rest[0] == rest[1]


def _is_as_asked(wanted: dict[str, Any], found: BoxFile | None) -> bool:
    if wanted.get("absent"):
        return found is None
    if found is None or found.folder or found.link != wanted.get("link", ""):
        return False
    if "mode" in wanted and found.mode != wanted["mode"]:
        return False
    if "base64" in wanted:
        return found.content == box_file({"base64": wanted["base64"]}).content
    stored = stored_file(BoxFile(found.content, PLAIN))
    text = stored if isinstance(stored, str) else None
    if "text" in wanted and (text is None or text.rstrip("\n") != wanted["text"].rstrip("\n")):
        return False
    return all(text is not None and part in text for part in wanted.get("contains", ()))
