"""What a pretrained language model learns on two cores, on several seeds, beside what can be had without RL.

    make demo-smollm2                                     # prepares what the profile reads
    python benchmarks/smollm2.py run --seeds 0 1 2        # hours; `--policies rl rejection_sampling` for some of them
    python benchmarks/smollm2.py show                     # tables and plot again from docs/smollm2.json

Each result goes into `docs/smollm2.json` as soon as it is there, with what every held-out task gave, so that results of
several days stand side by side and any two of them can be compared task by task. `rl` runs `tracewheel retrain` from nothing
and measures its time and memory; rejection sampling and DPO run it from a copy of that store, with as many episodes. The
longer warm start trains for as many more epochs as the time of reinforcement learning allows. Tables go between the marks in
`docs/smollm2.md`, the plot into `docs/smollm2.png`.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from measuring import between_marks, machine, table
from whole_run import UPDATE, findings, run, stages_of

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.comparison.paired import paired_differences
from tracewheel.config import EvaluateSections, RetrainConfig, WarmStartSections, load_config
from tracewheel.core.run_record import RunRecord
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.evaluation.evaluate import RESULTS_FILE, evaluate
from tracewheel.learner.warm_start.stage import warm_start
from tracewheel.policy.adapters import PolicyRef
from tracewheel.sampling.seeds import evaluation_seed

PROFILE = "configs/smollm2.yaml"
JSON, PAGE, PLOT = Path("docs/smollm2.json"), Path("docs/smollm2.md"), Path("docs/smollm2.png")
SPLITS = ("held_out", "harder")
LOOPS = {
    "rl": [],
    "rejection_sampling": ["learner.kind=rejection_sampling"],
    # The whole section, because the profile's holds keys of policy gradients.
    "dpo": [
        "learner={kind: dpo, learning_rate: 1.0e-4, minibatches: 4, micro_batch_tokens: 2048, layout: shared_prefix, "
        "gradient_checkpointing: false}"
    ],
}
WITHOUT_RL = ("base", "all_logs", "longer")
LABELS = {
    "base": "base",
    "all_logs": "warm start, all logs",
    "warm_start": "warm start, verified logs",
    "longer": "warm start, verified logs, longer",
    "rejection_sampling": "rejection sampling",
    "dpo": "DPO",
    "rl": "GRPO",
}
OF_TASKS, OF_OUTCOMES = ("task_id", "family", "tier"), ("greedy", "sampled_successes", "sampled_attempts")
FIGURES = {"greedy": 1.0, "sampled": 0.0, "gate's": 0.5}  # weight of greedy success


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "show"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--policies", nargs="+", choices=[*LOOPS, *WITHOUT_RL], default=[*LOOPS, *WITHOUT_RL])
    parser.add_argument("--work", type=Path, default=Path("runs/benchmark-smollm2"))
    arguments = parser.parse_args()
    if arguments.action == "run":
        for seed in arguments.seeds:
            for name in sorted(arguments.policies, key=[*LOOPS, *WITHOUT_RL].index):
                store(seed, measured(name, seed, arguments.work))
    between_marks(PAGE, "figures", "\n".join(report(stored())))
    plot(stored(), PLOT)


def measured(name: str, seed: int, work: Path) -> dict[str, dict[str, Any]]:
    """What a policy gives on a seed, and what is found on the way, by policy."""
    if name in LOOPS:
        return loop(name, seed, work)
    config = load_config(PROFILE, [f"seed={seed}"])
    finished = _finished(work / f"rl-{seed}")
    if name == "base":
        return {name: evaluated(config, finished.curated, PolicyRef(config.policy.base), work / f"{name}-{seed}")}
    seconds = stored()[str(seed)]["rl"]["seconds"]
    factor = 1 + (seconds["rollout"] + seconds["score"] + seconds["update"]) / seconds["warm_start"]
    epochs = config.warm_start.epochs * (1 if name == "all_logs" else math.ceil(factor))
    config = load_config(PROFILE, [f"seed={seed}", f"warm_start.epochs={epochs}"])
    out = work / f"{name}-{seed}"
    out.mkdir(parents=True, exist_ok=True)
    figures = warm_start(WarmStartSections.of(config), finished.curated, out, "all" if name == "all_logs" else "verified")
    policy = PolicyRef(config.policy.base, str(out / "adapter"), 0)
    return {name: {"epochs": epochs, "training": figures, **evaluated(config, finished.curated, policy, out)}}


def loop(name: str, seed: int, work: Path) -> dict[str, dict[str, Any]]:
    """A whole run; the one of `rl` gives its warm start, too."""
    folder = work / f"{name}-{seed}"
    if name == "rl" and folder.exists():
        raise SystemExit(f"{folder} exists; a measured run starts from nothing: remove it")
    if name != "rl" and not folder.exists():
        shutil.copytree(work / f"rl-{seed}" / "store", folder / "store")
    settings = [f"seed={seed}", f"tracking.model_name=smollm2-{name}-{seed}", *LOOPS[name]]
    arguments = argparse.Namespace(profile=PROFILE, overrides=settings, run_dir=folder, threads=2)
    wall, samples, summary = run(arguments)
    stages = stages_of(folder / "store", samples)
    finished = _finished(folder)
    kept = ("gate", "validation", "best_iteration", "seconds", "tokens", "episodes", "wall_seconds")
    found = {
        **{key: summary[key] for key in kept},
        "settings": settings,
        "peak_gb": max(size for _, size in samples) / 1e9,
        "updates": [{key: stage["result"].get(key) for key in UPDATE} for stage in stages if stage["stage"] == "update"],
        "doctor": [item for item in findings(arguments) if item["severity"] not in ("healthy", "not_checked")],
        "tasks": {split: outcomes(finished, "rl", split) for split in SPLITS},
    }
    both = {name: found}
    if name == "rl":
        both["warm_start"] = {"tasks": {split: outcomes(finished, summary["gate"]["baseline"], split) for split in SPLITS}}
        both["rl"]["wall_s"] = wall
    return both


def _finished(folder: Path) -> FinishedRun:
    record = next(path.parent for path in folder.glob("*/summary.json"))
    return FinishedRun(RunRecord(folder, record.name))


def outcomes(finished: FinishedRun, policy: str, split: str) -> dict[str, list[Any]]:
    entry = finished.evaluation(policy, split)
    assert entry is not None, f"{finished.record}: no evaluation of {policy} on {split}"
    return compact(pd.read_parquet(entry.path / RESULTS_FILE))


def evaluated(config: RetrainConfig, curated: Path, policy: PolicyRef, work: Path) -> dict[str, Any]:
    """A policy's outcomes on both splits."""
    tasks = {}
    for split in SPLITS:
        out = work / split
        out.mkdir(parents=True, exist_ok=True)
        seed, samples = evaluation_seed(config.seed, split), config.evaluation.samples
        evaluate(EvaluateSections.of(config), policy, load_tasks(curated, split), out, samples=samples, seed=seed)
        tasks[split] = compact(pd.read_parquet(out / RESULTS_FILE))
    return {"tasks": tasks}


def compact(results: pd.DataFrame) -> dict[str, list[Any]]:
    """By column, an entry for each task; in the order of the tasks' ids."""
    ordered = results.sort_values("task_id").astype({"sampled_successes": int, "sampled_attempts": int})
    return {column: ordered[column].tolist() for column in (*OF_TASKS, *OF_OUTCOMES)}


def store(seed: int, found: dict[str, dict[str, Any]]) -> None:
    """Put results into the JSON, each with the commit and the machine; what is known of the tasks stands there once a seed."""
    results = json.loads(JSON.read_text()) if JSON.exists() else {"seeds": {}}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    kept = results["seeds"].setdefault(str(seed), {"tasks": {}, "policies": {}})
    for name, result in found.items():
        outcomes = result.pop("tasks")
        for split, columns in outcomes.items():
            tasks = {column: columns.pop(column) for column in OF_TASKS}
            if kept["tasks"].setdefault(split, tasks) != tasks:
                raise SystemExit(f"seed {seed}, {split}: other tasks than those of {JSON}; remove its seed {seed} first")
        kept["policies"][name] = {"commit": commit, "machine": machine(2), **result, "outcomes": outcomes}
    results["seeds"] = dict(sorted(results["seeds"].items()))
    JSON.write_text(json.dumps(results) + "\n")


def stored() -> dict[str, dict[str, dict[str, Any]]]:
    """By seed and policy, what is stored; `tasks` are tables by split."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for seed, kept in json.loads(JSON.read_text())["seeds"].items():
        found[seed] = {
            name: {**result, "tasks": {split: {**kept["tasks"][split], **result["outcomes"][split]} for split in SPLITS}}
            for name, result in kept["policies"].items()
        }
    return found


def report(seeds: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The tables in Markdown."""
    columns = [f"seed {seed}" for seed in seeds]
    known = [name for name in LABELS if any(name in found for found in seeds.values())]
    for split, title in zip(SPLITS, ("the 200 held-out tasks", "the 100 tasks of the harder tier"), strict=True):
        rows = [
            [LABELS[name], *(_rates(found[name]["tasks"][split]) if name in found else "–" for found in seeds.values())]
            for name in known
        ]
        yield f"Success on {title}, greedy / sampled:\n\n{table(['policy', *columns], rows)}\n"
    gains = [
        [f"{LABELS[name]}, {figure}", *(_gain(found, name, weight) for found in seeds.values())]
        for name in known
        for figure, weight in FIGURES.items()
        if name != "rl"
    ]
    said = "GRPO minus each policy without it on the held-out tasks, paired, in points, with 95% intervals:"
    yield f"{said}\n\n{table(['policy', *columns], gains)}\n"
    said = "The same by family, over the warm start, in the gate's figure (half greedy, half sampled):"
    yield f"{said}\n\n{table(['family', *columns], [*_families(seeds)])}\n"
    head = ["GRPO, from nothing", "minutes", "peak GB", "warm start", "rollouts", "updates", "evaluations", "date", "doctor"]
    yield table(head, [_cost(seed, found["rl"]) for seed, found in seeds.items() if "rl" in found]) + "\n"


def _cost(seed: str, found: dict[str, Any]) -> list[Any]:
    minutes = [found["seconds"][stage] / 60 for stage in ("warm_start", "rollout", "update", "evaluate")]
    doctor = ", ".join(f"{item['check']} ({item['severity']})" for item in found["doctor"])
    return [f"seed {seed}", found["wall_s"] / 60, found["peak_gb"], *minutes, found["machine"]["date"], doctor or "healthy"]


def _rates(tasks: dict[str, list[Any]]) -> str:
    frame = pd.DataFrame(tasks)
    sampled = frame["sampled_successes"].sum() / max(frame["sampled_attempts"].sum(), 1)
    return f"{frame['greedy'].mean():.3f} / {sampled:.3f}"


def _gain(found: dict[str, Any], name: str, weight: float) -> str:
    if name not in found or "rl" not in found:
        return "–"
    after, before = (pd.DataFrame(found[key]["tasks"]["held_out"]) for key in ("rl", name))
    return _points(paired_differences(after, before, greedy_weight=weight)["rows"][0])


def _points(row: dict[str, Any]) -> str:
    low, high = row["interval"]
    return f"{100 * row['difference']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def _families(seeds: dict[str, dict[str, Any]]) -> Iterator[list[str]]:
    by_family: dict[str, list[str]] = {}
    for found in seeds.values():
        after, before = (pd.DataFrame(found[key]["tasks"]["held_out"]) for key in ("rl", "warm_start"))
        for row in paired_differences(after, before, greedy_weight=0.5)["rows"]:
            by_family.setdefault(row["family"], []).append(_points(row))
    yield from ([family, *cells] for family, cells in by_family.items())


def plot(seeds: dict[str, dict[str, Any]], path: Path) -> None:
    """Validation over the iterations, and held-out success of every policy with its seeds as points."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (curves, bars) = plt.subplots(1, 2, figsize=(11, 4.2))
    names = [name for name in LABELS if any(name in found for found in seeds.values())]
    for number, (seed, found) in enumerate(seeds.items()):
        validation = found["rl"]["validation"]
        steps = sorted(map(int, validation))
        for mode, style in (("greedy", "-"), ("sampled", "--")):
            curves.plot(
                steps, [validation[str(step)][mode] for step in steps], style, color=f"C{number}", label=f"seed {seed}, {mode}"
            )
        for mode, marker in (("greedy", "o"), ("sampled", "x")):
            rates = [
                _rates(found[name]["tasks"]["held_out"]).split(" / ")[mode == "sampled"] if name in found else "nan"
                for name in names
            ]
            bars.plot(
                [place + 0.12 * number for place in range(len(names))],
                [*map(float, rates)],
                marker,
                color=f"C{number}",
                label=f"seed {seed}, {mode}",
            )
    curves.set(xlabel="iteration", ylabel="success", title="48 validation tasks", ylim=(0, 1))
    bars.set(title="200 held-out tasks", ylim=(0, 1))
    bars.set_xticks(range(len(names)), [LABELS[name] for name in names], rotation=25, ha="right", fontsize=8)
    for axis in (curves, bars):
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
