"""How busy an engine of 64 slots is while tools take their time: episodes of 5 calls on a fake engine whose steps take 10 ms.

    python benchmarks/engine_busy.py [--seconds 0.2 2] [--threads 1 0] [--episodes 64 256]

A step moves all open turns on, as on a GPU; a turn takes 20 to 100 steps. With as many episodes as slots, slots get empty at
the end; with four times as many that is a small part. 0 threads is the default, as many as slots: the environment says nothing
of its calls.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import random
import time
from typing import Any

from tracewheel.config import RolloutConfig
from tracewheel.core.kind_table import give
from tracewheel.core.time_limits import WatchedThreads
from tracewheel.engines.base import Generation, Request
from tracewheel.environments import Observation
from tracewheel.environments.workspace.environment import WorkspaceEnvironment
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.policy.loading import load_renderer
from tracewheel.rollout.rollout import RolloutPlan, run_episodes

STEP_SECONDS = 0.01
SLOTS, CALLS, STEPS = 64, 5, (20, 100)
CALL = '<tool_call>\n{"name": "list_files", "arguments": {"path": "/"}}\n</tool_call>'


class SlowWorkspace(WorkspaceEnvironment):
    """Its calls wait."""

    tool_threads = None
    seconds = 0.0

    def step(self, tool: str, args: dict[str, Any]) -> Observation:
        time.sleep(self.seconds)
        return super().step(tool, args)


class FakeEngine:
    """Every turn is the same call; how many steps it takes is the session's."""

    policy_version = 0

    def __init__(self, renderer: Any) -> None:
        self.seconds, self.steps, self.turns = 0.0, 0, 0
        self._said = [*renderer.tokenizer.encode(CALL, add_special_tokens=False), renderer.end_of_turn_id]
        self._left: dict[int, int] = {}
        self._draws: dict[int, random.Random] = {}

    @property
    def idle(self) -> bool:
        return not self._left

    def submit(self, request: Request) -> None:
        draws = self._draws.setdefault(request.session, random.Random(request.session))
        self._left[request.session] = draws.randint(*STEPS)

    def step(self) -> list[Generation]:
        began = time.monotonic()
        time.sleep(STEP_SECONDS)
        self.seconds, self.steps = self.seconds + time.monotonic() - began, self.steps + 1
        moved = list(itertools.islice(self._left, SLOTS))  # in the order of their requests; the others wait
        self.turns += len(moved)
        for session in moved:
            self._left[session] -= 1
        ended = [session for session in moved if not self._left[session]]
        for session in ended:
            del self._left[session]
        count = len(self._said)
        return [Generation(session, self._said, [-1.0] * count, "stop", [0] * count) for session in ended]

    def close(self, session: int) -> None: ...


def measure(seconds: float, threads: int, episodes: int = SLOTS, base: str = "data/base") -> dict[str, float]:
    """One rollout.

    `busy` is the share of its time in which the engine steps, `busy_of_waiting` that of steps and waits for tools alone.
    `own_ms_a_step` is the CPU time of the thread that steps the engine. `open_turns` is the mean number of turns in a step.
    """
    renderer = load_renderer(base, "hermes")
    engine = FakeEngine(renderer)
    SlowWorkspace.seconds = seconds
    families, rng = list(FAMILIES), random.Random(0)
    tasks = [
        dataclasses.replace(make_task(families[number % len(families)], 1, rng), environment=give(f"{__name__}:SlowWorkspace"))
        for number in range(episodes // 2)
    ]
    config = RolloutConfig.model_validate(
        {"engine": {"slots": SLOTS}, "max_turns": CALLS, "max_tokens": 8000, "tool_threads": threads}
    )
    waited, done = 0.0, WatchedThreads.done

    def timed(tools: WatchedThreads, *given: Any, **more: Any) -> Any:
        nonlocal waited
        started = time.monotonic()
        try:
            return done(tools, *given, **more)
        finally:
            waited += time.monotonic() - started

    WatchedThreads.done = timed  # type: ignore[method-assign]
    began, cpu = time.monotonic(), time.thread_time()
    found = run_episodes(engine, renderer, config, RolloutPlan(tasks, samples=2, seed=0))  # type: ignore[arg-type]
    wall, cpu = time.monotonic() - began, time.thread_time() - cpu
    WatchedThreads.done = done  # type: ignore[method-assign]
    assert [len(trajectory.turns) for trajectory in found] == [CALLS] * episodes
    return {
        "tool_seconds": seconds,
        "threads": threads,
        "episodes": episodes,
        "wall_s": round(wall, 2),
        "busy": round(engine.seconds / wall, 3),
        "busy_of_waiting": round(engine.seconds / (engine.seconds + waited), 3),
        "own_ms_a_step": round(1e3 * cpu / engine.steps, 2),
        "open_turns": round(engine.turns / engine.steps, 1),
    }


def main() -> None:
    """Measure each pair and print one line of JSON for it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, nargs="+", default=[0.2, 2.0], help="how long a tool takes")
    parser.add_argument("--threads", type=int, nargs="+", default=[0], help="rollout.tool_threads; 0 is the default")
    parser.add_argument("--episodes", type=int, nargs="+", default=[SLOTS], help="of a rollout, an even number")
    options = parser.parse_args()
    for given in itertools.product(options.seconds, options.threads, options.episodes):
        print(json.dumps(measure(*given)), flush=True)


if __name__ == "__main__":
    main()
