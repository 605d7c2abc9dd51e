"""What an episode of a program costs beside one of the built-in loop: CPU seconds, the programs' own included.

    python benchmarks/harness.py --episodes 64 --json benchmarks/results/harness_overhead.json

Plays the same workspace tasks with the tiny base by our own loop, by `examples/openai_agent.py` started for each episode, and
by the same program forked from a process that has imported OpenAI's client already. Each side is a fresh pool on one engine,
and the sides take turns. The ratio is to our own loop. What the programs do not take, engine, gateway and environment do.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from statistics import median
from typing import Any

from measuring import Meter, emit, machine, table

from tracewheel.config import PolicyConfig, RolloutConfig
from tracewheel.engines.base import Sampling
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.loading import load_base, load_renderer
from tracewheel.rollout.episode import EpisodeSpec
from tracewheel.rollout.harness.pool import HarnessPool
from tracewheel.rollout.rollout import episode_pool

AGENT = str(Path(__file__).parents[1] / "examples" / "openai_agent.py")
COMMAND = ["python", AGENT]
SIDES: dict[str, dict[str, Any] | None] = {
    "built-in loop": None,
    "program": {"command": COMMAND, "sandbox": "none"},  # a box tells nobody what ran in it took
    "program, preloaded": {"command": COMMAND, "sandbox": "none", "preload": ["openai.resources.chat", "httpx"]},
}
HEADINGS = ["side", "CPU s an episode", "of it programs", "ratio", "turns", "tokens"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="data/base")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures here, and the table beside it")
    arguments = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for repeat in range(arguments.repeats + 1):
        for side, harness in SIDES.items():
            measured = play(arguments.base, arguments.episodes, harness)
            if repeat:  # the first round warms up caches and imports
                found[side].append(measured)
    rows = [{"side": side, **{key: median(one[key] for one in each) for key in each[0]}} for side, each in found.items()]
    for row in rows:
        row["ratio"] = row["cpu_s"] / rows[0]["cpu_s"]
    result = {"command": " ".join(sys.argv), "machine": machine(arguments.threads), "rows": rows, "rounds": found}
    emit(result, table(HEADINGS, [shown(row) for row in rows]), arguments.json)


def play(base: str, episodes: int, harness: dict[str, Any] | None) -> dict[str, float]:
    """Figures of one side, for each episode."""
    rng = random.Random(0)
    tasks = [make_task(FAMILIES[number % len(FAMILIES)], 1 + number % 2, rng) for number in range(episodes)]
    renderer = load_renderer(base, "hermes")
    model = load_base(PolicyConfig(), base)
    engine = TransformersEngine(lambda _: model, PolicyRef(base), renderer.end_of_turn_ids, Sampling(), slots=64)
    config = RolloutConfig(max_tokens=400, max_turn_tokens=48, harness=harness)
    trajectories, programs = [], 0.0
    with Meter() as meter, episode_pool(engine, renderer, config) as pool:  # closed, with its children, before the meter ends
        for number, task in enumerate(tasks):
            pool.begin(number, EpisodeSpec(task, 0, number, 1.0))
        while pool.open:
            trajectories += [trajectory for _, trajectory in pool.step()]
        if isinstance(pool, HarnessPool):
            programs = pool.cpu_seconds
    turns = sum(len(trajectory.turns) for trajectory in trajectories)
    tokens = sum(sum(trajectory.action_mask) for trajectory in trajectories)
    return {
        "cpu_s": meter.cpu_s / episodes,
        "programs_s": programs / episodes,
        "wall_s": meter.wall_s / episodes,
        "turns": turns / episodes,
        "tokens": tokens / episodes,
    }


def shown(row: dict[str, Any]) -> list[str]:
    """A row of the table."""
    numbers = [f"{row['cpu_s']:.3f}", f"{row['programs_s']:.3f}", f"{row['ratio']:.2f}", f"{row['turns']:.1f}"]
    return [row["side"], *numbers, f"{row['tokens']:.0f}"]


if __name__ == "__main__":
    main()
