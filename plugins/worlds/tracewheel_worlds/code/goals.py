"""Reading the goal of a code task that a log or a file names."""

from __future__ import annotations

from typing import Any

from tracewheel import DataError
from tracewheel_worlds.box_state import check_path
from tracewheel_worlds.code.grading import FORMATS, VIEWS
from tracewheel_worlds.code.values import decode_claim

NEEDED = {"family": str, "tier": int, "form": str, "file": str, "cases": list, "shown": int}
OF_PROGRAM = {"args": list, "stdin": str, "files": dict, "outputs": dict}


def check_goal(goal: Any) -> None:
    """Check a goal (see `grading.py`).

    Raises:
        DataError: it is no goal of this environment; the message names the part.
    """
    if not isinstance(goal, dict):
        raise DataError("'goal' is to be an object")
    for name, kind in NEEDED.items():
        if type(goal.get(name)) is not kind:
            raise DataError(f"'goal.{name}' needs a value of type {kind.__name__}")
    if goal["form"] not in ("function", "program"):
        raise DataError("'goal.form' needs 'function' or 'program'")
    try:
        check_path(goal["file"])
    except ValueError as error:
        raise DataError(f"'goal.file': {error}") from None
    if not goal["cases"] or not 0 <= goal["shown"] <= len(goal["cases"]):
        raise DataError("'goal.cases' needs at least one case, and 'goal.shown' says how many of them are in the prompt")
    if goal["form"] == "function" and (
        not isinstance(goal.get("function"), str) or goal.get("types") not in ("strict", "equal")
    ):
        raise DataError("'goal.function' needs a name, and 'goal.types' is 'strict' or 'equal'")
    check = _check_call if goal["form"] == "function" else _check_start
    for number, case in enumerate(goal["cases"]):
        try:
            check(case)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"'goal.cases[{number}]': {type(error).__name__}: {error}") from None


def _check_call(case: Any) -> None:
    decode_claim(case["args"])
    decode_claim(case["expected"])
    for value in case.get("kwargs", {}).values():
        decode_claim(value)
    if case.get("view", "") not in VIEWS:
        raise ValueError(f"no view {case['view']!r}")


def _check_start(case: Any) -> None:
    for name, kind in OF_PROGRAM.items():
        if not isinstance(case[name], kind):
            raise TypeError(f"'{name}' is to be a {kind.__name__}")
    for path in (*case["files"], *case["outputs"]):
        check_path(path)
    if any(output["format"] not in FORMATS for output in case["outputs"].values()):
        raise ValueError(f"'format' of an output is one of {', '.join(FORMATS)}")
    if case.get("stdout") is None and not case["outputs"]:
        raise ValueError("nothing is expected: 'stdout' and 'outputs' are empty")
