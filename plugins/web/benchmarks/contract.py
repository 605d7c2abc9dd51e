"""What the environments of this wheel promise, on many instances: `plugins/web/benchmarks/contract.py miniwob 100 > table`.

Of each family: the scripted agent succeeds, doing nothing and near misses do not, and a second reset shows the same page.
"""

from __future__ import annotations

import collections
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tracewheel import Task, make_environment, make_verifier
from tracewheel_web.environment import WebEnvironment
from tracewheel_web.miniwob.environment import MiniwobArgs, MiniwobEnvironment
from tracewheel_web.scripted import play

THREADS, SEED = 4, 7
COLUMNS = ("tasks", "solved", "did nothing", "near misses", "of them right", "other page at reset", "calls")


def judged(environment: Any, task: Task) -> float:
    """The verifier's total for the state as it is."""
    return float(make_verifier(task.verifier).verify(task, environment.snapshot())[0])


def checked(maker: WebEnvironment, kind: str, task: Task) -> collections.Counter[str]:
    """The counts of one task."""
    environment: Any = make_environment(kind)
    environment.resources = maker.shared
    played = play(environment, task, maker.agent(task))
    found = collections.Counter({"tasks": 1, "calls": len(played.calls)})
    try:
        environment.reset(task)
        found["other page at reset"] += bool(played.views) and environment.view.items != played.views[0].items
        found["did nothing"] += judged(environment, task) > 0
        for name, calls in {"solved": played.calls, **environment.near_misses(task)}.items():
            environment.reset(task)
            for call in calls:
                if environment.step(*call).done:
                    break
            right = judged(environment, task) == 1.0
            found["solved" if name == "solved" else "near misses"] += right if name == "solved" else 1
            if right and name != "solved":
                found["of them right"] += 1
                print(f"near miss {name} is right: {task.id} {task.initial_state} {calls}", file=sys.stderr)
            if name == "solved" and not right:
                print(f"not solved: {task.id} {task.initial_state} {calls}", file=sys.stderr)
    finally:
        environment.close()
    return found


def tasks_of(maker: Any, kind: str, family: str, wanted: int) -> list[Task]:
    """So many different tasks of a family."""
    if kind != "miniwob":
        return [task for task in maker.make_tasks(wanted * len(maker.families), SEED) if task.family == family]
    one: Any = MiniwobEnvironment(MiniwobArgs(pages=(family,)))
    one.resources = maker.shared
    return list(one.make_tasks(wanted, SEED))


def main() -> None:
    kind, wanted = sys.argv[1], int(sys.argv[2])
    families = sys.argv[3:]
    maker: Any = make_environment(kind)
    print(f"| family | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}", flush=True)
    try:
        for family in families or maker.families:
            tasks = tasks_of(maker, kind, family, wanted)
            with ThreadPoolExecutor(THREADS) as pool:
                found = sum(pool.map(lambda task: checked(maker, kind, task), tasks), collections.Counter())
            print(f"| {family} | {' | '.join(str(found[column]) for column in COLUMNS)} |", flush=True)
    finally:
        maker.close()


if __name__ == "__main__":
    main()
