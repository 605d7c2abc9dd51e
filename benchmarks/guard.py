"""The guard: false alarms on simulated healthy runs, the delay on simulated collapses, and a real collapse of the tiny policy.

    python benchmarks/guard.py simulate --runs 112 --out benchmarks/results/guard.json
    python benchmarks/guard.py replay --run-dir runs --out benchmarks/results/guard.json
    python benchmarks/guard.py collapse --rates 0.03 --iterations 8 --run-dir runs --out benchmarks/results/guard.json

`simulate` draws tasks of different difficulty, plays them with the task sampler of the loop and judges each iteration as the
loop does. Healthy policies improve, stand still or wander; collapsing ones follow the success of the pilot's run (0.22, 0.14,
0.06, 0.02), or fall apart after they have learnt. Nothing is trained. `replay` judges the stored runs of a work folder, as a
loop with the guard would have. `collapse` trains: the demo's profile with a learning rate far too high, with the guard and
without, or with the rate that trials find (`--rates auto`).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tracewheel.config import SamplerConfig
from tracewheel.core.files import read_json, write_json
from tracewheel.sampling.guard import IterationFigures, TaskCounts, judge
from tracewheel.sampling.sampler import TaskSampler

ITERATIONS = 24
COLLAPSE = (0.22, 0.14, 0.06, 0.02)  # training success of the 135M policy at learning rate 5e-4
FAMILIES = 4
CARRIED = 0.5  # of a policy's deviation, to the next one


@dataclass(frozen=True)
class World:
    """How runs are simulated.

    Attributes:
        tasks: Size of the training pool.
        drawn: Tasks an iteration.
        group: Episodes a task.
        spread: Standard deviation of the tasks' difficulty, in logits.
        drift: Gain of an iteration, in logits.
        wander: Standard deviation of a policy around that course, the same for all tasks, in logits.
        own: The same of each task; half of both carries over to the next policy.
    """

    tasks: int = 72
    drawn: int = 32
    group: int = 8
    spread: float = 1.5
    drift: float = 0.1
    wander: float = 0.15
    own: float = 0.4
    sampler: str = "difficulty"


HEALTHY = {
    "demo's size, learning": World(),
    "demo's size, at a standstill": World(drift=0.0),
    "demo's size, wandering more": World(drift=0.05, wander=0.3),
    "small iterations (16 x 8)": World(drawn=16),
    "very small iterations (8 x 8)": World(drawn=8),
    "large pool, few tasks twice": World(tasks=2000),
    "very different tasks": World(spread=3.0),
    "learnability sampler": World(sampler="learnability"),
    "uniform sampler": World(sampler="uniform"),
}


def simulate(world: World, seed: int, *, start: float, success: Sequence[float] | None = None) -> int | None:
    """The iteration at which the guard raises its first alarm in a simulated run; None without one.

    Args:
        world: How it is simulated.
        seed: Of all draws.
        start: Mean success of the first policy over all tasks, in logits.
        success: Mean success over all tasks by iteration, for a collapse; None for a healthy run.
    """
    rng = np.random.default_rng(seed)
    names = [f"task-{number:04}" for number in range(world.tasks)]
    families = {name: f"family-{number % FAMILIES}" for number, name in enumerate(names)}
    place = {name: number for number, name in enumerate(names)}
    sampler = TaskSampler(SamplerConfig(kind=world.sampler), names, seed)  # type: ignore[arg-type]
    difficulty = rng.normal(0.0, world.spread, world.tasks)
    shared, own = 0.0, np.zeros(world.tasks)
    validations: dict[int, float] = {}
    history: list[IterationFigures] = []
    entropy, norm, kl = math.log(0.04), math.log(0.08), math.log(0.012)
    for iteration in range(1, (len(success) if success else ITERATIONS) + 1):
        level = _level_for(success[iteration - 1], difficulty + own) if success else start + world.drift * iteration + shared
        rates = 1 / (1 + np.exp(-(level + difficulty + own)))
        if iteration % 2 == 1:
            validations[iteration - 1] = float(np.mean(rng.random(48) < rng.choice(rates, 48)))
        counts = {}
        for name in sampler.select(world.drawn, iteration):
            wins = int(rng.binomial(world.group, rates[place[name]]))
            sampler.observe(name, wins, world.group - wins)
            counts[name] = TaskCounts(wins, world.group, int(rng.binomial(world.group, 0.01)), world.group)
        # The demo's figures move like this from iteration to iteration: see docs/guard.md.
        metrics = {
            "entropy": math.exp(entropy - 0.04 * iteration + rng.normal(0, 0.3)),
            "grad_norm": math.exp(norm + 0.03 * iteration + rng.normal(0, 0.4)),
            "kl": math.exp(kl + rng.normal(0, 0.7)),
        }
        history.append(IterationFigures(iteration, counts, metrics))
        best = max(validations, key=lambda number: (validations[number], -number))
        if judge(history, best=best, families=families):
            return iteration
        shared = CARRIED * shared + math.sqrt(1 - CARRIED**2) * rng.normal(0.0, world.wander)
        own = CARRIED * own + math.sqrt(1 - CARRIED**2) * rng.normal(0.0, world.own, world.tasks)
    return None


def _level_for(mean: float, offsets: np.ndarray) -> float:
    """The level, in logits, at which the tasks' mean success has a value."""
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.mean(1 / (1 + np.exp(-(middle + offsets)))) < mean else (low, middle)
    return low


def run_simulations(runs: int) -> dict[str, Any]:
    """Shares of healthy runs with an alarm, and delays of collapses."""
    healthy = {}
    for place, (name, world) in enumerate(HEALTHY.items()):
        starts = np.random.default_rng(place).uniform(-2.0, 2.0, runs)
        alarms = sum(simulate(world, 10_000 * place + k, start=float(starts[k])) is not None for k in range(runs))
        healthy[name] = {"runs": runs, "iterations": ITERATIONS, "alarms": alarms, "share": alarms / runs}
        print(f"{name:32} {alarms:4} of {runs} healthy runs with an alarm")
    learnt = [0.25, 0.35, 0.45, 0.55, 0.6, 0.65, 0.7, 0.7]
    collapses = {
        "published (0.22, 0.14, 0.06, 0.02, then 0.01)": [*COLLAPSE, *[0.01] * 8],
        "after learning, to a half in two": [*learnt, 0.5, 0.35, *[0.35] * 6],
        "after learning, to nothing at once": [*learnt, 0.02, *[0.02] * 6],
        "after learning, 0.05 lost an iteration": [*learnt, *[0.7 - 0.05 * k for k in range(1, 14)]],
    }
    first = {name: 2 if name.startswith("published") else len(learnt) + 1 for name in collapses}
    delays = {}
    for name, course in collapses.items():
        for drawn in (8, 16, 32):
            found = [simulate(World(drawn=drawn), 500_000 + k, start=0.0, success=course) for k in range(max(1, runs // 5))]
            seen = [at for at in found if at is not None and at >= first[name]]
            early = sum(at is not None and at < first[name] for at in found)
            at = [int(np.quantile(seen, q)) for q in (0.5, 0.9)] if seen else [None, None]
            delays[f"{name}; {drawn} x 8 episodes"] = {
                "runs": len(found), "first bad iteration": first[name], "found": len(seen), "before it": early,
                "median iteration": at[0], "90% by iteration": at[1],
            }  # fmt: skip
            print(f"{name}; {drawn} x 8 episodes: {delays[f'{name}; {drawn} x 8 episodes']}")
    return {"healthy": healthy, "collapses": delays}


def run_replays(work_dir: Path) -> dict[str, Any]:
    """Judge the stored iterations of finished runs."""
    from tracewheel.report.doctor import LOOP_FILE, read_families
    from tracewheel.sampling.guard import count_episodes
    from tracewheel.scoring.flaws import offered_tools

    found = {}
    store = work_dir / "store"
    for file in sorted(work_dir.glob(f"*/{LOOP_FILE}")):
        loop = read_json(file)
        families = read_families(store / loop["curated"])
        validations = {int(n): read_json(store / entry / "evaluation.json") for n, entry in loop["validations"].items()}
        rates = {n: (result["greedy"]["rate"] + result["sampled"]["rate"]) / 2 for n, result in validations.items()}
        history: list[IterationFigures] = []
        alarms = []
        for number, made in sorted((int(n), made) for n, made in loop["iterations"].items()):
            trajectories = [store / entry / "trajectories.parquet" for entry in made["rollouts"]]
            scores = [store / entry / "scores.parquet" for entry in made["scores"]]
            metrics = read_json(store / made["update"] / "metrics.json")
            counts = count_episodes(trajectories, scores, offered_tools("workspace"))
            shown = {name: metrics[name] for name in ("entropy", "kl", "grad_norm") if name in metrics}
            history.append(IterationFigures(number, counts, shown))
            best = max((n for n in rates if n < number), key=lambda n: (rates[n], -n))
            alarm = judge(history, best=best, families=families)
            alarms += [f"iteration {number}: {alarm.sentence}"] if alarm else []
        found[file.parent.name] = {"iterations": len(history), "alarms": alarms}
        print(file.parent.name, found[file.parent.name])
    return {"replayed": found}


def run_collapses(options: argparse.Namespace) -> dict[str, Any]:
    """Train the demo's policy at rates far too high, with the guard and without."""
    from flows.improve import improve
    from flows.setup import prepare_environment, resolve_config, use_threads
    from tasks.engine.drivers import DirectDriver
    from tasks.engine.reading import begin_run
    from tasks.stages.curate import curate_tasks
    from tasks.stages.evaluate import evaluate_policy
    from tasks.stages.ingest import ingest_traces
    from tasks.stages.warm_start import warm_start_policy
    from tracewheel.config import SamplerSections
    from tracewheel.sampling.curriculum import make_sampler

    prepare_environment(None)
    found = {}
    for seed in options.seeds:
        for rate in options.rates:
            for enabled in (False, True) if rate != "auto" else (True,):
                settings = [f"seed={seed}", f"learner.learning_rate={rate}", f"guard.enabled={enabled}".lower(), "threads=1"]
                settings += [f"training.iterations={options.iterations}", *options.overrides]
                run = begin_run(resolve_config(options.profile, settings, options.run_dir), driver=DirectDriver())
                use_threads(1)
                with run.hold():
                    traces = ingest_traces(run, snapshot=run.snapshot)
                    curated = curate_tasks(run, traces=traces)
                    start = run.adapted("start", warm_start_policy(run, curated=curated, demonstrations="verified"))
                    sampler = make_sampler(SamplerSections.of(run.config), curated.path)
                    learned = improve(run, curated, start, sampler)
                    last = max(learned.updates)
                    entry = evaluate_policy(run, policy=learned.best.policy, curated=curated, split="held_out", samples=1)
                key = f"learning rate {rate}, seed {seed}, guard {'on' if enabled else 'off'}"
                found[key] = {
                    "training success": {n: round(figures["success"], 3) for n, figures in learned.updates.items()},
                    "learning rate": {n: figures["learning_rate"] for n, figures in learned.updates.items()},
                    "validation": {n: value and round(value, 3) for n, value in learned.rates.items()},
                    "last iteration": last,
                    "best iteration": learned.best.iteration,
                    "best, held-out greedy": entry.result["greedy"]["rate"],
                    "events": [event.sentence for event in learned.guard],
                    "trials": learned.rate_trials,
                }
                print(key, json.dumps(found[key], indent=1))
    return {"real": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["simulate", "replay", "collapse"])
    parser.add_argument("--runs", type=int, default=1000, help="simulated healthy runs of each kind")
    parser.add_argument("--profile", default="configs/tiny.yaml")
    parser.add_argument("--rates", nargs="+", default=["0.03"], help="learning rates; auto for trials")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--set", dest="overrides", action="append", default=[], help="further settings of the profile")
    parser.add_argument("--run-dir", default="runs")
    parser.add_argument("--out", type=Path, help="JSON file that gets the figures, beside those of the other kind")
    options = parser.parse_args()
    if options.what == "simulate":
        found = run_simulations(options.runs)
    else:
        found = run_collapses(options) if options.what == "collapse" else run_replays(Path(options.run_dir))
    if options.out:
        kept = read_json(options.out) if options.out.is_file() else {}
        write_json(options.out, kept | found)


if __name__ == "__main__":
    main()
