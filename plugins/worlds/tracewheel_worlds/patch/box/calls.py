"""Runs in the grading box: `python3 -I -S calls.py`. The calls of a module have a process of their own.

Calls come in as JSON, outcomes go out as JSON, each as a text. What is right is not known here, so there is nothing to gain
by writing other outcomes: the comparison is made outside.
"""

import importlib
import json
import os
import sys
from itertools import groupby
from typing import Any

MOST = 1 << 20  # bytes that a process may say


def encoded(value: Any) -> Any:
    """A value as JSON types, tuples as lists."""
    kind = type(value)
    if kind in (bool, int, float, str, type(None)):
        return value
    if kind in (list, tuple):
        return [encoded(part) for part in value]
    if kind is dict and all(type(key) is str for key in value):
        return {key: encoded(part) for key, part in value.items()}
    raise TypeError(kind.__name__)


def outcome(call: str, args: list[Any]) -> dict[str, Any]:
    """What came of a call."""
    module, _, function = call.partition(":")
    try:
        return {"value": encoded(getattr(importlib.import_module(module), function)(*args))}
    except Exception as error:
        return {"raises": type(error).__name__}


def make_calls(calls: list[dict[str, Any]], answers: int) -> None:
    """Make calls in this process, and write a line for each."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    sys.path.insert(0, os.getcwd())
    for one in calls:
        os.write(answers, json.dumps(outcome(one["call"], one["args"])).encode() + b"\n")


def apart(calls: list[dict[str, Any]]) -> list[str]:
    """The outcomes of calls from a process of their own, as texts; "" for those that it did not come to."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(read)
        try:
            make_calls(calls, write)
        finally:
            os._exit(0)
    os.close(write)
    said = b""
    while len(said) < MOST and (part := os.read(read, 65536)):
        said += part
    os.close(read)
    os.waitpid(process, 0)
    lines = said.decode(errors="replace").split("\n")[: len(calls)]
    return lines + [""] * (len(calls) - len(lines))


def main() -> None:
    """Answer the calls of the standard input."""
    asked = json.load(sys.stdin)
    os.write(1, b"ready\n")  # before any of the agent's code: what fails from here on is its own
    for _, calls in groupby(asked, lambda one: one["call"].partition(":")[0]):
        for line in apart(list(calls)):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
