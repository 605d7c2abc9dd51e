"""What a box costs: the start of an interpreter and a whole run, bare and boxed side by side, and sixteen runs at once.

    python sandbox.py                 # 100 rounds; every round runs each side once
    python sandbox.py --rounds 20 --pause 0.1

`start` is from the call to the interpreter's first statement, `whole` to the result. Bare is the same interpreter, started by
`subprocess.run` with an empty environment and its output read. The second table is of one run after another and of sixteen at
once, where no side pauses. Prints JSON and tables.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from measuring import emit, machine, table

from tracewheel_worlds.sandbox import make_sandbox

# The clock that counts from the machine's start is the same in a box.
PROGRAM = ["python3", "-c", "import time; print(time.clock_gettime(time.CLOCK_MONOTONIC))"]
FILES = {"solution.py": b"def f(x):\n    return x\n" * 50, "data/in.csv": b"a,b\n1,2\n" * 500, "notes.md": b"notes\n"}
AT_ONCE = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--pause", type=float, default=0.2, help="seconds before each timed run")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    sandbox = make_sandbox()
    sides: dict[str, Callable[[], bytes]] = {
        "bare": bare,
        "boxed": lambda: sandbox.run(PROGRAM).stdout,
        "boxed, files in and out": lambda: sandbox.run(PROGRAM, FILES, keep=True).stdout,
    }
    starts: dict[str, list[float]] = {name: [] for name in sides}
    wholes: dict[str, list[float]] = {name: [] for name in sides}
    load = [os.getloadavg()[0]]
    for _ in range(arguments.rounds + 1):
        for name, side in sides.items():
            time.sleep(arguments.pause)
            began = time.monotonic()
            first = float(side())
            wholes[name].append(time.monotonic() - began)
            starts[name].append(first - began)
    medians = {
        name: {
            f"{kind}_ms": 1000 * statistics.median(times[name][1:])  # the first round also tests the sandbox
            for kind, times in (("start", starts), ("whole", wholes))
        }
        for name in sides
    }
    load.append(os.getloadavg()[0])
    together = {
        (number, name): at_once(sides[name], number, arguments.rounds) for number in (1, AT_ONCE) for name in ("bare", "boxed")
    }
    rows = [
        [
            name,
            *found.values(),
            found["start_ms"] / medians["bare"]["start_ms"],
            found["whole_ms"] / medians["bare"]["whole_ms"],
        ]
        for name, found in medians.items()
    ]
    text = table(["side", "start, ms", "whole, ms", "start, times bare", "whole, times bare"], rows)
    text += "\n\n" + table(
        ["at once, without a pause", "side", "runs a second", "median start, ms"],
        [[number, name, *found.values()] for (number, name), found in together.items()],
    )
    text += f"\n\nload of the machine: {load[0]:.1f} before, {load[1]:.1f} after"
    result = {"machine": machine(1), "rounds": arguments.rounds, "load": load, "medians": medians}
    result["without_pause"] = [{"at_once": number, "side": name, **found} for (number, name), found in together.items()]
    emit(result, text, arguments.json)


def bare() -> bytes:
    """The interpreter that a box would take."""
    return subprocess.run(PROGRAM, env={"PATH": "/usr/local/bin:/usr/bin:/bin"}, capture_output=True, check=True).stdout


def at_once(side: Callable[[], bytes], number: int, runs: int) -> dict[str, float]:
    """Runs with so many of them at any time and no pause: how many a second, and how long each took to start."""

    def start(_: int) -> float:
        called = time.monotonic()
        return float(side()) - called

    with ThreadPoolExecutor(number) as threads:
        began = time.monotonic()
        starts = list(threads.map(start, range(runs)))
        took = time.monotonic() - began
    return {"runs_per_second": runs / took, "start_ms": 1000 * statistics.median(starts)}


if __name__ == "__main__":
    main()
