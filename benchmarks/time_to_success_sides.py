"""Shared by both sides of benchmarks/time_to_success.py: the profile, the clock and the evaluation."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measuring import cpu_seconds
from stage_loop import curated_logs, warm_started

from tracewheel.config import EvaluateSections, RetrainConfig, load_config
from tracewheel.core.types import Task
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.evaluation.evaluate import evaluate
from tracewheel.policy.adapters import PolicyRef
from tracewheel.sampling.seeds import evaluation_seed
from tracewheel.sampling.validation import VALIDATION_SAMPLES, validation_rate

CURATED, START = "curated", "warm_start"
EPISODES = 256  # between two evaluations, on both sides


def prepare(setting: dict[str, Any], out: Path) -> None:
    """Curate the logs and train the warm start of the loop, unless both exist."""
    config = configuration(setting)
    warm_started(config, curated_logs(config, out / CURATED), out / START)


def configuration(setting: dict[str, Any]) -> RetrainConfig:
    """The profile of a setting, with its seed, threads and other `changes`."""
    changes = [f"seed={setting['seed']}", f"threads={setting['threads']}", *setting.get("changes", [])]
    return load_config(setting["profile"], changes)


def even_subset(tasks: Sequence[Task], count: int) -> list[Task]:
    """`count` of the tasks, with the same shares of families and tiers; all where there are no more."""
    ordered = sorted(tasks, key=lambda task: (task.family, task.tier, task.id))
    count = min(count, len(ordered))
    return [ordered[number * len(ordered) // count] for number in range(count)]


class Clock:
    """CPU and wall seconds while it runs; evaluations stop it."""

    def __init__(self) -> None:
        self.cpu_s = self.wall_s = 0.0

    def start(self) -> None:
        self._cpu, self._wall = cpu_seconds(), time.perf_counter()

    def stop(self) -> None:
        self.cpu_s += cpu_seconds() - self._cpu
        self.wall_s += time.perf_counter() - self._wall


class Race:
    """One side on its way to the target.

    Args:
        start: What `prepare` wrote.
        setting: `profile`, `seed`, `threads`, `changes` to the profile, `split`, `target`, and `limit` in CPU seconds;
            optionally `every`, the episodes between two evaluations, and `tasks`, how many of the split are played then.
    """

    def __init__(self, start: Path, setting: dict[str, Any]) -> None:
        self.config = configuration(setting)
        self.curated, self.state = start / CURATED, start / START
        self.clock = Clock()
        self.curve: list[dict[str, float]] = []
        self._setting = setting
        self.every: int = setting.get("every", EPISODES)
        tasks = load_tasks(self.curated, setting["split"])
        self._tasks = even_subset(tasks, setting["tasks"]) if setting.get("tasks") else tasks

    def is_due(self, before: int, episodes: int) -> bool:
        """Whether an evaluation falls between two numbers of episodes: an iteration may have fewer than `every`."""
        return episodes // self.every > before // self.every

    def evaluate(self, adapter: Path, episodes: int) -> bool:
        """Add the policy to the curve, with the clock stopped. Returns whether the side has ended."""
        seed = evaluation_seed(self.config.seed, self._setting["split"])
        policy = PolicyRef(self.config.policy.base, str(adapter), version=0)
        with tempfile.TemporaryDirectory() as out:
            summary = evaluate(
                EvaluateSections.of(self.config), policy, self._tasks, Path(out), samples=VALIDATION_SAMPLES, seed=seed
            )
        point = {
            "episodes": episodes,
            "cpu_s": self.clock.cpu_s,
            "wall_s": self.clock.wall_s,
            "greedy": summary["greedy"]["rate"],
            "sampled": summary["sampled"]["rate"],
            "rate": validation_rate(summary),
        }
        self.curve.append(point)
        print(json.dumps(point), file=sys.stderr, flush=True)
        return self.reached or self.clock.cpu_s > self._setting["limit"]

    @property
    def reached(self) -> bool:
        return self.curve[-1]["rate"] >= self._setting["target"]

    def result(self, **more: Any) -> str:
        figures = {"reached": self.reached, "cpu_s": self.clock.cpu_s, "wall_s": self.clock.wall_s, "curve": self.curve}
        figures["peak_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # evaluations included
        return json.dumps(figures | more)


if __name__ == "__main__":
    prepare(json.loads(sys.argv[2]), Path(sys.argv[1]))
