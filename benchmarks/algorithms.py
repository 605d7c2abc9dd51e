"""The algorithms side by side: the same warm start, the same budget of episodes, several seeds.

    python benchmarks/algorithms.py --seeds 0 1 2 --jobs 2

For each seed one run makes the shared part (curated tasks, warm starts, their evaluations); each
algorithm then runs `tracewheel retrain` from a copy of that store. Prints JSON and a table; writes
`results/algorithms.json`, `results/algorithms.md` and `results/algorithms.png`, or the same under another `--name`.
With `--show` table and picture are made again from the JSON.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from methods import MethodDifference, difference_of, method_table

from tracewheel.config import load_config

# Each runs with its preset; PPO with one critic epoch, which halves its cost. Nothing is tuned.
ALGORITHMS: dict[str, list[str]] = {
    "grpo": ["learner.kind=grpo"],
    "dapo": ["learner.kind=dapo", "learner.kl=0"],
    "ppo": ["learner.kind=ppo", "learner.advantage.critic.epochs=1"],
    "rloo": ["learner.kind=rloo"],
    # The whole section, because the profile's holds a key of policy gradients.
    "dpo": ["learner={kind: dpo, learning_rate: 1.0e-3, gradient_checkpointing: false, replay_path: data/base/replay.parquet}"],
    "rejection_sampling": ["learner.kind=rejection_sampling", "learner.kl=0"],
    "grpo_sequence": ["learner.kind=grpo", "learner.aggregation=sequence"],
    # The tiny policy's episodes have 60 generated tokens on average.
    "dapo_overlong": ["learner.kind=dapo", "learner.kl=0", "rubric.overlong.max_tokens=100", "rubric.overlong.cache=30"],
    "remax": ["learner.kind=remax"],
    "reinforce": ["learner.kind=reinforce"],
    # As PPO's, the critic has one epoch; its pretraining is 4 epochs of 4 minibatches instead of 12.
    "vapo": [
        "learner.kind=vapo",
        "learner.kl=0",
        "learner.advantage.critic.epochs=1",
        "learner.advantage.critic.warmup_epochs=4",
    ],
}
LABELS = {
    "grpo": "GRPO",
    "dapo": "DAPO",
    "ppo": "PPO with critic",
    "rloo": "RLOO",
    "dpo": "DPO",
    "rejection_sampling": "rejection sampling",
    "grpo_sequence": "GRPO, mean per sequence",
    "dapo_overlong": "DAPO, overlong punished",
    "remax": "ReMax",
    "reinforce": "REINFORCE, batch baseline",
    "vapo": "VAPO",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="configs/tiny.yaml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--algorithms", nargs="+", choices=list(ALGORITHMS), default=list(ALGORITHMS))
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; with more than one each gets one thread")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="a.b=c", help="for every run")
    parser.add_argument("--work", type=Path, default=Path("runs/benchmark-algorithms"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--name", default="algorithms", help="of the files written")
    parser.add_argument("--show", action="store_true", help="from what is stored, without any run")
    arguments = parser.parse_args()
    stored = arguments.out / f"{arguments.name}.json"
    if not arguments.show:
        stored.parent.mkdir(parents=True, exist_ok=True)
        stored.write_text(json.dumps(_measured(arguments), indent=2) + "\n")
        print(stored.read_text())
    found = json.loads(stored.read_text())
    table = _table(found["results"], found["episodes"])
    stored.with_suffix(".md").write_text(table)
    _plot(found["results"], stored.with_suffix(".png"))
    print(table)


def _measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """The budget of episodes, and the results by algorithm and seed."""
    config = load_config(arguments.profile, arguments.overrides)
    per_iteration = min(config.training.tasks_per_iteration, config.curation.train_tasks) * config.rollout.group_size
    budget = config.training.iterations * per_iteration
    threads = ["threads=1"] if arguments.jobs > 1 else []
    common = [*arguments.overrides, f"training.episodes={budget}", *threads]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        starts = {seed: pool.submit(_start, arguments.profile, seed, common, arguments.work) for seed in arguments.seeds}
        runs = {
            (name, seed): pool.submit(_run, arguments.profile, name, seed, common, starts[seed].result(), arguments.work)
            for seed in arguments.seeds
            for name in arguments.algorithms
        }
        results = {name: {str(seed): runs[name, seed].result() for seed in arguments.seeds} for name in arguments.algorithms}
    return {"episodes": budget, "results": results}


def _start(profile: str, seed: int, common: list[str], work: Path) -> Path:
    """The store with all stages before reinforcement learning, and its evaluations."""
    folder = work / f"start-{seed}"
    _retrain(profile, [*common, f"seed={seed}", "training.iterations=1"], folder)
    return folder / "store"


def _run(profile: str, name: str, seed: int, common: list[str], store: Path, work: Path) -> dict[str, Any]:
    folder = work / f"{name}-{seed}"
    if not folder.exists():
        shutil.copytree(store, folder / "store")
    summary = _retrain(profile, [*common, *ALGORITHMS[name], f"seed={seed}"], folder)
    print(f"{name}, seed {seed}: {summary['success']['rl']:.3f} held-out", file=sys.stderr, flush=True)
    kept = (
        "success",
        "sampled",
        "harder",
        "intervals",
        "gate",
        "best_iteration",
        "validation",
        "seconds",
        "tokens",
        "episodes",
    )
    return {key: summary[key] for key in kept}


def _retrain(profile: str, overrides: list[str], folder: Path) -> dict[str, Any]:
    """One run through the command line, as a user would; a refused gate (3) is a result too."""
    command = [sys.executable, "-m", "flows.cli", "retrain", profile, "--run-dir", str(folder), "--json"]
    for override in overrides:
        command += ["--set", override]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{done.stderr[-3000:]}")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def _table(results: dict[str, Any], budget: int) -> str:
    """Markdown: for each algorithm the seeds' held-out success, its gain over the best policy without RL, and its cost."""
    lines = [
        f"Held-out success after {budget} episodes, greedy / sampled, from the same warm start; in brackets the gain in greedy "
        "success over the best policy without RL, with its 95% interval over tasks, for this adapter.",
        "",
    ]
    seeds = list(next(iter(results.values())))
    lines.append(
        "| algorithm | "
        + " | ".join(f"seed {seed}" for seed in seeds)
        + " | mean greedy | mean harder tier | episodes | update seconds |"
    )
    lines.append("|---|" + "---|" * (len(seeds) + 4))
    start = next(iter(results.values()))
    cells = [f"{start[seed]['success'][start[seed]['gate']['baseline']]:.3f}" for seed in seeds]
    lines.append("| best without RL | " + " | ".join(cells) + " | | | | |")
    for name, runs in results.items():
        cells = []
        for seed in seeds:
            run = runs[seed]
            low, high = run["gate"]["interval"]
            cells.append(
                f"{run['success']['rl']:.3f} / {run['sampled']['rl']:.3f} "
                f"({100 * run['gate']['difference']:+.1f}: {100 * low:+.1f} to {100 * high:+.1f})"
            )
        means = [statistics.mean(run[key]["rl"] for run in runs.values()) for key in ("success", "harder")]
        seconds = statistics.mean(run["seconds"]["update"] for run in runs.values())
        used = [run["episodes"] for run in runs.values()]
        episodes = str(used[0]) if len(set(used)) == 1 else f"{min(used)} to {max(used)}"
        cells += [f"{means[0]:.3f}", f"{means[1]:.3f}", episodes, f"{seconds:.0f}"]
        lines.append(f"| {LABELS[name]} | " + " | ".join(cells) + " |")
    if len(seeds) > 1:
        said = "The methods over seeds, in the gate's figure (half greedy, half sampled; 95% intervals, 80% power):"
        lines += ["", said, "", method_table(_over_seeds(results))]
    return "\n".join(lines) + "\n"


def _over_seeds(results: dict[str, Any]) -> dict[str, MethodDifference]:
    """Each algorithm minus the best policy without RL, and GRPO minus each other: the means by seed are all that is stored."""

    def figures(runs: dict[str, Any], policy: str = "rl") -> list[float]:
        names = [policy if policy == "rl" else run["gate"][policy] for run in runs.values()]
        return [(run["success"][name] + run["sampled"][name]) / 2 for run, name in zip(runs.values(), names, strict=True)]

    found = {
        f"{LABELS[name]} minus best without RL": difference_of(figures(runs), figures(runs, "baseline"))
        for name, runs in results.items()
    }
    if (grpo := results.get("grpo")) is None:
        return found
    others = {name: runs for name, runs in results.items() if name != "grpo"}
    return found | {f"GRPO minus {LABELS[name]}": difference_of(figures(grpo), figures(runs)) for name, runs in others.items()}


def _plot(results: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (curves, bars) = plt.subplots(1, 2, figsize=(12, 4.6))
    for number, (name, runs) in enumerate(results.items()):
        color = f"C{number}"
        points: dict[int, list[float]] = {}
        for run in runs.values():
            for iteration, rates in run["validation"].items():
                points.setdefault(int(iteration), []).append((rates["greedy"] + rates["sampled"]) / 2)
        steps = sorted(iteration for iteration, values in points.items() if len(values) == len(runs))
        curves.plot(steps, [statistics.mean(points[step]) for step in steps], color=color, label=LABELS[name])
        curves.fill_between(
            steps, [min(points[step]) for step in steps], [max(points[step]) for step in steps], color=color, alpha=0.12
        )
        for place, run in enumerate(runs.values()):
            x = number + (place - (len(runs) - 1) / 2) * 0.22
            rate = run["success"]["rl"]
            low, high = run["intervals"]["success"]["rl"]
            bars.errorbar(x, rate, [[rate - low], [high - rate]], fmt="o", color=color, capsize=3, markersize=5)
            before = run["success"][run["gate"]["baseline"]]
            label = "best without RL" if number == place == 0 else None
            bars.plot([x - 0.09, x + 0.09], [before, before], color="black", linewidth=2, label=label)
    curves.set_xlabel("iteration")
    curves.set_ylabel("success, mean of greedy and sampled")
    curves.set_title("Validation tasks (mean of the seeds, their range shaded)", fontsize=10)
    curves.legend(fontsize=8)
    bars.set_xticks(range(len(results)))
    bars.set_xticklabels([LABELS[name] for name in results], rotation=20, ha="right", fontsize=9)
    bars.set_title("Held-out tasks, greedy: each seed with its 95% interval over tasks", fontsize=10)
    bars.legend(fontsize=8, loc="lower right")
    for axis in (curves, bars):
        axis.set_ylim(0.5, 1.0)
        axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
