"""Measures the rates of the scale simulation that need no GPU, and writes them to `scale_rates.json`.

python scale_measure.py            # prints them
python scale_measure.py --write    # replaces the assumed rates
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from learner_workload import Workload as Shape
from learner_workload import trajectories as random_tokens
from measuring import Meter, emit, machine, table
from scale_sim import RATES

from tracewheel.config import RetrainConfig, RolloutSections, ScoreSections
from tracewheel.core.files import read_records, write_records
from tracewheel.core.types import Task, Trajectory
from tracewheel.engines.base import Generation, Request
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.loading import load_renderer
from tracewheel.rollout.episode import EpisodeSpec
from tracewheel.rollout.episode_pool import EpisodePool
from tracewheel.rollout.orders import Order
from tracewheel.rollout.rollout import TRAJECTORIES_FILE, RolloutPlan, episode_seed, rollout
from tracewheel.rollout.trajectory_queue import TrajectoryQueue
from tracewheel.scoring.score import score

BASE = Path(__file__).parents[1] / "data" / "base"
TASKS, SAMPLES = 32, 8
START = "import tracewheel.learner.update, torch, transformers, peft, deepspeed"


class Replay:
    """An engine that repeats recorded replies at once; session n is episode n."""

    policy_version = 0

    def __init__(self, said: list[list[list[int]]]) -> None:
        self._said = [iter(turns) for turns in said]
        self._asked: list[int] = []

    @property
    def idle(self) -> bool:
        return not self._asked

    def submit(self, request: Request) -> None:
        self._asked.append(request.session)

    def step(self) -> list[Generation]:
        asked, self._asked = self._asked, []
        turns = [(session, next(self._said[session])) for session in asked]
        return [Generation(session, ids, [-0.1] * len(ids), "stop", [0] * len(ids)) for session, ids in turns]

    def close(self, session: int) -> None: ...

    def update_weights(self, policy: PolicyRef) -> None: ...


def measure() -> dict[str, tuple[float, str]]:
    """Rates by name, with what was measured."""
    config = RetrainConfig.model_validate({"name": "measure", "threads": 1, "policy": {"base": str(BASE)}})
    rng = random.Random(0)
    tasks = [make_task(FAMILIES[number % len(FAMILIES)], 1 + number % 4, rng) for number in range(TASKS)]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        rollout(RolloutSections.of(config), PolicyRef(str(BASE)), RolloutPlan(tasks, samples=SAMPLES, seed=0), out)
        file = out / TRAJECTORIES_FILE
        sampled = read_records(file, Trajectory)
        tokens = sum(len(each.token_ids) for each in sampled)
        episodes = f"{len(sampled)} episodes of the tiny base, {tokens / len(sampled):.0f} tokens each"
        rubric = ScoreSections.of(config)
        scoring = _fastest(lambda: (write_records(out / "again.parquet", sampled), score(rubric, tasks, file, out / "scores")))
        long_bytes, long_what = _long_bytes(sampled[0], out / "long.parquet")
        return {
            "trajectory.token_bytes": (long_bytes, long_what),
            "trajectory.token_bytes_short": (file.stat().st_size / tokens, f"trajectories.parquet of {episodes}"),
            "driver.score_s": (scoring / len(sampled), f"CPU seconds of writing, reading and scoring {episodes}"),
            "driver.queue_s": (
                _queue_seconds(tasks, sampled, out),
                f"lease and hand-in of a group of {SAMPLES}, the quickest of {TASKS}",
            ),
            "worker.turn_s": (
                _turn_seconds(config, tasks, sampled),
                f"CPU seconds of the episode pool with an engine that costs nothing, {episodes}",
            ),
            "update.start_s": (_start_seconds(), "CPU seconds of a process that imports the learner and DeepSpeed"),
        }


def _fastest(work: Any, times: int = 3) -> float:
    """The least CPU seconds, children included, of several tries, which reduces the effect of other work."""
    found = []
    for _ in range(times):
        with Meter() as meter:
            work()
        found.append(meter.cpu_s)
    return min(found)


def _long_bytes(like: Trajectory, path: Path) -> tuple[float, str]:
    """Bytes a token of long trajectories whose ids and log-probabilities are random, so that they compress badly."""
    rng = random.Random(0)
    shape = Shape(vocabulary=152_064, tokens=5000, group=8, prompts=4)
    rows = random_tokens(shape).to_dict("records")
    written = []
    for number, row in enumerate(rows):
        ids, mask = list(row["token_ids"]), list(row["action_mask"])
        logprobs = [-rng.expovariate(2.0) if bit else 0.0 for bit in mask]
        text = " ".join(str(token) for token in ids)  # about as long as the text of so many tokens
        messages = [{"role": "user", "content": text}]
        written.append(
            replace(like, id=str(number), token_ids=ids, action_mask=mask, logprobs=logprobs, messages=messages, turns=[])
        )
    write_records(path, written)
    tokens = sum(len(each.token_ids) for each in written)
    return path.stat().st_size / tokens, f"{len(written)} trajectories of up to 5,000 random ids of 152,064, with their text"


def _queue_seconds(tasks: list[Task], sampled: list[Trajectory], out: Path) -> float:
    queue = TrajectoryQueue.open(out / "queue.sqlite", "measure", 1)
    queue.publish(PolicyRef(str(BASE)))
    orders = [Order(number, 1, task.to_record(), False, SAMPLES, 0, 1.0) for number, task in enumerate(tasks)]
    queue.issue(orders)
    groups = {task.id: [each for each in sampled if each.task_id == task.id] for task in tasks}
    found = []
    for _ in orders:
        start = time.perf_counter()
        (order,) = queue.lease("one", 1)
        group = [order.own(each) for each in groups[order.task["id"]]]
        assert queue.complete(order, "one", group)
        found.append(time.perf_counter() - start)
    queue.close()
    return min(found)  # wall seconds, because it waits for the disk


def _turn_seconds(config: RetrainConfig, tasks: list[Task], sampled: list[Trajectory]) -> float:
    renderer = load_renderer(str(BASE), config.policy.tool_format)
    by_id = {task.id: task for task in tasks}
    said = [[each.token_ids[turn["start"] : turn["end"]] for turn in each.turns] for each in sampled]
    turns = sum(len(each.turns) for each in sampled)

    def play() -> None:
        pool = EpisodePool(Replay(said), renderer, config.rollout)
        for number, each in enumerate(sampled):
            task = by_id[each.task_id]
            seed = episode_seed(0, task, each.sample)
            pool.begin(number, EpisodeSpec(task, each.sample, seed, config.rollout.temperature))
        while pool.open:
            pool.step()

    return _fastest(play) / turns


def _start_seconds() -> float:
    return _fastest(lambda: subprocess.run([sys.executable, "-c", START], check=True, capture_output=True))


def rows(found: dict[str, tuple[float, str]]) -> Iterator[list[Any]]:
    for name, (value, what) in found.items():
        yield [name, value, what]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    found, here = measure(), machine(1)
    emit({"machine": here, "rates": found}, table(["rate", "value", "measured on"], list(rows(found))), None)
    if options.write:
        written = json.loads(RATES.read_text())
        for name, (value, what) in found.items():
            if name in written:
                basis = f"{what}; {here['date']}, {here['cpu']}, one thread"
                written[name] |= {"value": float(f"{value:.3g}"), "source": "measured", "basis": basis}
        lines = [f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in written.items()]
        RATES.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
