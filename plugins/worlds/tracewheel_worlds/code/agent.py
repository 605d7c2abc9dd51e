"""The known solution of a task, and ways to almost solve it. They are never shown to a policy in training."""

from __future__ import annotations

from typing import Any

from tracewheel import Task
from tracewheel_worlds.code.values import decode_claim

Call = tuple[str, dict[str, Any]]
OTHER_TYPES = {
    list: "tuple(value)",
    tuple: "list(value)",
    int: "float(value)",
    float: "str(value)",
    str: "list(value)",
    dict: "list(value.items())",
}


def solution(task: Task) -> list[Call] | None:
    """The calls that solve a task; None where no solution is known."""
    source = task.goal.get("solution")
    return written(task.goal["file"], source) if source else None


def near_misses(task: Task) -> dict[str, list[Call]]:
    """Calls that come close to solving a task, by what is wrong with them."""
    goal = task.goal
    file, source = goal["file"], goal.get("solution")
    if not source:
        return {}
    sources = dict(goal.get("near_misses", {}))
    if goal["form"] == "function":
        name = goal["function"]
        kind = type(decode_claim(goal["cases"][0]["expected"]))
        if goal["types"] == "strict" and kind in OTHER_TYPES:
            sources["wrong_type"] = _wrapped(source, name, f"return {OTHER_TYPES[kind]}")
        if goal["shown"]:
            shown = goal["cases"][: goal["shown"]]
            known = {repr(decode_claim(case["args"])): decode_claim(case["expected"]) for case in shown}
            sources["hard_coded"] = f"def {name}(*given):\n    return {known!r}.get(repr([*given]))\n"
    elif goal["shown"] and goal["cases"][0].get("stdout") is not None:
        sources["hard_coded"] = f"print({goal['cases'][0]['stdout']!r}, end='')\n"
    calls = {name: written(file, text) for name, text in sources.items()}
    return {"wrong_place": written(f"answer_{file}", source), **calls}


def written(path: str, source: str) -> list[Call]:
    """The calls that write a file, and no more."""
    return [("write_file", {"path": path, "content": source}), ("submit", {})]


def _wrapped(source: str, name: str, ending: str) -> str:
    """A file whose function hands the right result to another ending."""
    return f"{source}\n\nright = {name}\n\n\ndef {name}(*given):\n    value = right(*given)\n    {ending}\n"
