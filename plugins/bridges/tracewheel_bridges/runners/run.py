"""Runs in another project's Python: `python run.py BRIDGE`. It imports nothing of Tracewheel.

A line of JSON in, a line of JSON out: `{"do": "open" | "step" | "reply" | "close" | "tasks", ...}` gives `{"ok": ...}` or
`{"failed": message}`. `BRIDGE` is a script beside this one with a class `World`, whose methods have these names. What the
project prints goes to the error output.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any


def load(name: str) -> Any:
    """The `World` of a bridge."""
    spec = importlib.util.spec_from_file_location(f"bridge_{name}", Path(__file__).parent / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.World()


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.path[0] = os.getcwd()  # not the folder of this script, whose names are no modules of the project
    world = load(sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"ok": getattr(world, request.pop("do"))(**request)}
        except Exception as error:  # the project's code may fail in any way; it is told who waits for it
            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
