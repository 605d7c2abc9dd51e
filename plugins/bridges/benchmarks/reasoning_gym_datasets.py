"""Which datasets of reasoning-gym can be used, and what their scorers do with known, empty and wrong answers.

python reasoning_gym_datasets.py .venv-standards/reasoning_gym/bin/python --tasks 60 --out FILE
"""

import argparse
import json
import time
from collections import Counter
from pathlib import Path

from tracewheel.core.errors import ConfigError
from tracewheel.core.files import write_json
from tracewheel.environments.base import BridgeFailure, play_calls
from tracewheel.scoring.verifiers import make_verifier
from tracewheel_bridges.reasoning_gym import CHECKED, ReasoningGymEnvironment

ANY = "chain_sum"


def opened(options, dataset, shared):
    args = ReasoningGymEnvironment.Args(python=options.python, datasets=[dataset], lenient=True, start_seconds=600)
    environment = ReasoningGymEnvironment(args)
    environment.resources = shared
    return environment


def tasks_of(environment, n):
    """`n` tasks, or as many as there are."""
    while True:
        try:
            return environment.make_tasks(n, 0)
        except ConfigError as error:
            if "is refused" in str(error) or n < 2:
                raise
            n //= 2


def total(environment, task, calls):
    play_calls(environment, task, calls)
    return make_verifier(task.verifier).verify(task, environment.snapshot())[0]


def measured(options, dataset, shared):
    """The figures of a dataset."""
    began, environment = time.monotonic(), opened(options, dataset, shared)
    try:
        tasks = tasks_of(environment, options.tasks)
    except ConfigError as error:
        return {"dataset": dataset, "refused": str(error).partition("is refused: ")[2]}
    check = environment._ask("check", 600, dataset=dataset, tiers=environment.tiers, count=CHECKED)
    misses, taken, known, nothing = Counter(), Counter(), 0, 0
    for task in tasks:
        known += total(environment, task, environment.solution(task)) == 1.0
        nothing += total(environment, task, []) == 0.0
        for way, calls in environment.near_misses(task).items():
            misses[way] += 1
            taken[way] += total(environment, task, calls) != 0.0
    return {
        "dataset": dataset,
        "lenient": check["lenient"],
        "tiers": check["tiers"],
        "tasks": len(tasks),
        "known_1": known,
        "nothing_0": nothing,
        "wrong": sum(misses.values()),
        "wrong_accepted": {way: count for way, count in sorted(taken.items()) if count},
        "seconds": round(time.monotonic() - began, 1),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python")
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--datasets", nargs="*")
    options = parser.parse_args()
    shared = ReasoningGymEnvironment.setup(
        ReasoningGymEnvironment.Args(python=options.python, datasets=[ANY], start_seconds=600)
    )
    found = []
    for dataset in options.datasets or shared.ask("names", 60):
        try:
            found.append(measured(options, dataset, shared))
        except BridgeFailure as failure:
            found.append({"dataset": dataset, "failed": str(failure)})
        print(json.dumps(found[-1]), flush=True)
        write_json(options.out, found)
    shared.close()
