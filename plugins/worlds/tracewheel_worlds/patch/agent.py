"""The scripted agents of the patch environment: the known solution, and ways to almost solve a task."""

from __future__ import annotations

from typing import Any

from tracewheel import Task

Call = tuple[str, dict[str, Any]]
SUBMIT: Call = ("submit", {})


def solution(task: Task) -> list[Call]:
    """The edits that take the bugs out."""
    return [*_edits(task.goal["edits"]), SUBMIT]


def near_misses(task: Task) -> dict[str, list[Call]]:
    """Ways that come close, by what is wrong with them; none for a task that was not generated."""
    goal = task.goal
    if "shown" not in goal:
        return {}
    right = _edits(goal["edits"])
    found = {
        "visible_case_only": [*(_only(task, check) for check in goal["shown"]), SUBMIT],
        "test_changed_instead": [*(_forget(task, path) for path in goal["protected"] if path != "tests/__init__.py"), SUBMIT],
        "right_and_test_changed": [*right, _forget(task, goal["protected"][-1]), SUBMIT],
        "breaks_another": [*right, _break(task), SUBMIT],
        "wrong_file": [*(_elsewhere(task, edit) for edit in goal["edits"]), SUBMIT],
    }
    if len(right) > 1:
        found["half_done"] = [*right[:-1], SUBMIT]
    return found


def _edits(edits: list[dict[str, str]]) -> list[Call]:
    return [("edit", dict(edit)) for edit in edits]


def _only(task: Task, check: dict[str, Any]) -> Call:
    """The function gives what is right for this one call, and as before for others."""
    path, line = _definition(task, check["call"])
    names = ", ".join(name.strip() for name in line.partition("(")[2].partition(")")[0].split(","))
    wanted = check["expected"]
    then = f"raise {wanted['raises']}" if "raises" in wanted else f"return {wanted['value']!r}"
    new = f"{line}\n    if [{names}] == {check['args']!r}:\n        {then}"
    return "edit", {"path": path, "old": line, "new": new}


def _break(task: Task) -> Call:
    """A function that has no bug returns nothing."""
    broken = {edit["path"] for edit in task.goal["edits"]}
    calls = [check["call"] for check in task.goal["checks"] if check["expected"].get("value") is not None]
    others = [call for call in calls if call.partition(":")[0].replace(".", "/") + ".py" not in broken] or calls
    path, line = _definition(task, others[0])
    return "edit", {"path": path, "old": line, "new": f"{line}\n    return None"}


def _forget(task: Task, path: str) -> Call:
    """A test file without its tests."""
    return "edit", {"path": path, "old": task.initial_state["files"][path], "new": "# fixed\n"}


def _elsewhere(task: Task, edit: dict[str, str]) -> Call:
    """The right source, in a file of another name."""
    fixed = task.initial_state["files"][edit["path"]].replace(edit["old"], edit["new"], 1)
    return "edit", {"path": edit["path"].replace(".py", "_fixed.py"), "old": "", "new": fixed}


def _definition(task: Task, call: str) -> tuple[str, str]:
    """The path of a function's module, and the line that defines it."""
    module, _, function = call.partition(":")
    path = module.replace(".", "/") + ".py"
    lines = task.initial_state["files"][path].splitlines()
    return path, next(line for line in lines if line.startswith(f"def {function}("))
