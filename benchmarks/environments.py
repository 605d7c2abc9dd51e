"""Rates of the workspace environment's step, reset and snapshot and of its verifier, on scripted solutions.

    python benchmarks/environments.py

One thread, CPU seconds, best of several repetitions. Rates are also given relative to `calibration`, a fixed loop of plain
Python on dictionaries and strings, which depends least on the machine. Prints JSON and a table; `--json FILE` writes them.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import emit, machine, table

from tracewheel.core.types import Task
from tracewheel.environments import make_environment
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.scoring.verifiers.workspace import WorkspaceVerifier

TASKS_A_STRATUM, TIERS = 10, (1, 2, 3, 4, 5)
CALIBRATION = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    result = {"machine": machine(1), **measure(arguments.repetitions)}
    rows = [[name, float(rate), result["relative"].get(name)] for name, rate in result["per_cpu_s"].items()]
    emit(result, table(["what", "a CPU second", "over the calibration loop's"], rows), arguments.json)


def measure(repetitions: int) -> dict[str, Any]:
    """Rates a CPU second, also relative to the calibration loop; repetitions are interleaved."""
    rng = random.Random(0)
    tasks = [make_task(family, tier, rng) for family in FAMILIES for tier in TIERS for _ in range(TASKS_A_STRATUM)]
    calls = [solution(task) for task in tasks]
    steps = sum(len(each) for each in calls)
    finals = [_play(task, each) for task, each in zip(tasks, calls, strict=True)]
    verifier = WorkspaceVerifier()
    if {verifier.verify(task, final)[0] for task, final in zip(tasks, finals, strict=True)} != {1.0}:
        raise ValueError("a scripted solution fails")
    environment = make_environment("workspace")

    def reset() -> None:
        for task in tasks:
            environment.reset(task)

    def snapshot() -> None:
        for _ in tasks:
            environment.snapshot()

    def episodes() -> None:
        for task, each in zip(tasks, calls, strict=True):
            verifier.verify(task, _play(task, each))

    def verify() -> None:
        for task, final in zip(tasks, finals, strict=True):
            verifier.verify(task, final)

    # The timed function, and its operations per call.
    timed: dict[str, tuple[Callable[[], Any], int]] = {
        "calibration": (_calibrate, CALIBRATION),
        "reset": (reset, len(tasks)),
        "step": (lambda: _steps(tasks, calls), steps),
        "snapshot": (snapshot, len(tasks)),
        "verifier": (verify, len(tasks)),
        "whole episode": (episodes, len(tasks)),
    }
    best = dict.fromkeys(timed, float("inf"))
    for _ in range(repetitions):
        for name, (call, _) in timed.items():
            best[name] = min(best[name], call() if name == "step" else _seconds(call))
    rates = {name: count / best[name] for name, (_, count) in timed.items()}
    relative = {name: round(rate / rates["calibration"], 4) for name, rate in rates.items() if name != "calibration"}
    return {
        "tasks": len(tasks),
        "steps": steps,
        "per_cpu_s": {name: round(rate) for name, rate in rates.items()},
        "relative": relative,
    }


def _seconds(call: Callable[[], Any]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def _steps(tasks: list[Task], calls: list[Any]) -> float:
    """CPU seconds of the steps alone."""
    environments = [make_environment("workspace") for _ in tasks]
    for environment, task in zip(environments, tasks, strict=True):
        environment.reset(task)
    started = time.process_time()
    for environment, each in zip(environments, calls, strict=True):
        for name, arguments in each:
            environment.step(name, arguments)
    return time.process_time() - started


def _play(task: Task, calls: list[Any]) -> dict[str, Any]:
    environment = make_environment("workspace")
    environment.reset(task)
    for name, arguments in calls:
        environment.step(name, arguments)
    return environment.snapshot()


def _calibrate() -> int:
    """Dictionary and string operations like an environment's."""
    files: dict[str, str] = {f"/inbox/file{number}.txt": str(number) for number in range(8)}
    length = 0
    for number in range(CALIBRATION):
        path = f"/inbox/file{number % 8}.txt"
        text = files.pop(path)
        files[path] = text
        length += len("\n".join(sorted(name for name in files if name.endswith(".txt"))))
    return length


if __name__ == "__main__":
    main()
