"""What a pretrained language model learns on two cores, on several seeds, beside what can be had without RL.

    make demo-smollm2                                     # prepares what the profile reads
    python data/make_traces.py noisy_order_desk           # for the noisier world
    python benchmarks/smollm2.py run --seeds 0 1 2        # hours; `--policies rl rejection_sampling` for some of them
    python benchmarks/smollm2.py run --world noisy --policies rl rejection_sampling
    python benchmarks/smollm2.py run --world bfloat16 --policies rl          # on a processor that multiplies bfloat16
    python benchmarks/smollm2.py show                     # tables and plot again from benchmarks/results/smollm2.json

Each result goes into `results/smollm2.json` as soon as it is there, with what every held-out task gave, so that results of
several days stand side by side and any two of them can be compared task by task. `rl` runs `tracewheel retrain` from nothing
and measures its time and memory; rejection sampling runs it with as many episodes, DPO for about as long, from a copy of that
store where there is one. (Stages of other code than the store's are made again; on a machine of the same kind they come out
the same.) The longer warm start trains for as many more epochs as the time of reinforcement learning allows. Tables go
between the marks in `results/smollm2.md`, the plot into `results/smollm2.png`.

Where time is not what is measured, two runs beside each other, a core each, take about 0.7 of the time of one after the
other, and give the same bits as on two cores, for each still has two threads:

    OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0 taskset -c 0 python benchmarks/smollm2.py run --policies dpo --seeds 1
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
from measuring import between_marks, machine
from smollm2_report import SPLITS, ablation_report, plot, report
from stage_loop import curated_logs
from whole_run import UPDATE, findings, run, stages_of

from tracewheel.config import EvaluateSections, RetrainConfig, WarmStartSections, load_config
from tracewheel.core.run_record import RunRecord
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.evaluation.evaluate import RESULTS_FILE, evaluate
from tracewheel.learner.warm_start.stage import warm_start
from tracewheel.policy.adapters import PolicyRef
from tracewheel.report.finished_run import FinishedRun
from tracewheel.sampling.seeds import evaluation_seed

PROFILE = "configs/smollm2.yaml"
JSON, PAGE, PLOT = (
    Path("benchmarks/results/smollm2.json"),
    Path("benchmarks/results/smollm2.md"),
    Path("benchmarks/results/smollm2.png"),
)
# Which part of the JSON a world's results are in, and what it changes in the profile. In the noisier one tools fail, customers
# change their mind, and the reward is the share of the orders asked for that are done. Nearly all of its groups differ, so an
# iteration takes longer, and there are fewer. The profile's `auto` means bfloat16 on a processor that multiplies it. That is
# the plain world again under a name of its own, so that no table mixes the two.
WORLDS = {
    "plain": ("seeds", ["policy.dtype=float32"]),
    "noisy": (
        "noisy",
        [
            "policy.dtype=float32",
            "ingest.paths=[data/smollm2/noisy_order_desk.jsonl]",
            "environment.args={noisy: true}",
            "training.iterations=12",
            "rollout.max_turns=10",
            "rollout.max_tokens=384",
            "rubric.verifiers=[{kind: task}, {kind: progress}]",
            "rubric.objectives=[{kind: part, name: progress, part: progress}]",
        ],
    ),
    "bfloat16": ("bfloat16", ["policy.dtype=bfloat16"]),
}
LOOPS = {
    "rl": [],
    "rejection_sampling": ["learner.kind=rejection_sampling"],
    # The whole section, because the profile's holds keys of policy gradients. Two pairs a group, not four: the reference
    # scores a pair, too. The rate is the default: after one update at 1e-4 (seed 0) episodes sampled 2.3 times as much, at
    # 2e-5 1.2 times. Its episodes get longer all the same; eight iterations take about as long as 20 of GRPO's.
    "dpo": [
        "training.iterations=8",
        "learner={kind: dpo, learning_rate: 1.0e-5, pairs_per_group: 2, minibatches: 4, minibatch_of: groups, "
        "micro_batch_tokens: 1024, layout: shared_prefix, gradient_checkpointing: false}",
    ],
}
WITHOUT_RL = ("base", "all_logs", "longer")
OF_TASKS, OF_OUTCOMES = ("task_id", "family", "tier"), ("greedy", "sampled_successes", "sampled_attempts")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("run", "show"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--world", choices=WORLDS, default="plain")
    parser.add_argument("--policies", nargs="+", choices=[*LOOPS, *WITHOUT_RL], default=[*LOOPS, *WITHOUT_RL])
    parser.add_argument("--work", type=Path, default=Path("runs/benchmark-smollm2"))
    arguments = parser.parse_args()
    for seed in arguments.seeds if arguments.action != "show" else ():
        for name in sorted(arguments.policies, key=[*LOOPS, *WITHOUT_RL].index):
            store(WORLDS[arguments.world][0], seed, measured(name, seed, arguments.world, arguments.work))
    for part, lines in (("figures", report), ("noisy", report), ("bfloat16", report), ("ablations", ablation_report)):
        seeds = stored("seeds" if part == "figures" else part)
        between_marks(PAGE, part, "\n".join(lines(seeds)) if seeds else "Not run yet.\n")
    plot(stored("seeds"), PLOT)


def measured(name: str, seed: int, world: str, work: Path) -> dict[str, dict[str, Any]]:
    """What a policy gives on a seed, and what is found on the way, by policy."""
    part, settings = WORLDS[world]
    settings = [f"seed={seed}", *settings]
    start, folder = work / world / f"rl-{seed}", work / world / f"{name}-{seed}"
    if name in LOOPS:
        if name == "rl" and folder.exists():
            raise SystemExit(f"{folder} exists; a measured run starts from nothing: remove it")
        found, finished = loop([*settings, *LOOPS[name]], folder, None if name == "rl" else start)
        if name != "rl":
            return {name: found}
        baseline = found["gate"]["baseline"]
        return {name: found, "warm_start": {"tasks": {split: outcomes(finished, baseline, split) for split in SPLITS}}}
    config = load_config(PROFILE, settings)
    curated = curated_logs(config, work / world / f"curated-{seed}")
    if name == "base":
        return {name: evaluated(config, curated, PolicyRef(config.policy.base), folder)}
    seconds = stored(part)[str(seed)]["rl"]["seconds"]
    factor = 1 + (seconds["rollout"] + seconds["score"] + seconds["update"]) / seconds["warm_start"]
    epochs = config.warm_start.epochs * (1 if name == "all_logs" else math.ceil(factor))
    config = load_config(PROFILE, [*settings, f"warm_start.epochs={epochs}"])
    folder.mkdir(parents=True, exist_ok=True)
    figures = warm_start(WarmStartSections.of(config), curated, folder, "all" if name == "all_logs" else "verified")
    policy = PolicyRef(config.policy.base, str(folder / "adapter"), 0)
    return {name: {"epochs": epochs, "training": figures, **evaluated(config, curated, policy, folder)}}


def loop(settings: list[str], folder: Path, start: Path | None) -> tuple[dict[str, Any], FinishedRun]:
    """A whole run, from nothing or with the data, the warm start and the evaluations of another run, where that is there."""
    if start and start.exists() and not folder.exists():
        shutil.copytree(start / "store", folder / "store", ignore=shutil.ignore_patterns("rollout-*", "score-*", "update-*"))
    settings = [*settings, f"tracking.model_name=smollm2-{folder.parent.name}-{folder.name}"]
    arguments = argparse.Namespace(profile=PROFILE, overrides=settings, run_dir=folder, threads=2)
    wall, samples, summary = run(arguments)
    stages, finished = stages_of(folder / "store", samples), _finished(folder)
    chosen = "rl" if finished.evaluation("rl", SPLITS[0]) else summary["gate"]["baseline"]  # validation may prefer the start
    kept = ("gate", "validation", "best_iteration", "seconds", "tokens", "episodes", "wall_seconds")
    found = {
        **{key: summary[key] for key in kept},
        "settings": settings,
        "wall_s": wall,
        "peak_gb": max(size for _, size in samples) / 1e9,
        "peak_gb_by_stage": {
            name: max(stage["peak_gb"] for stage in stages if stage["stage"] == name)
            for name in {each["stage"] for each in stages}
        },
        "updates": [{key: stage["result"].get(key) for key in UPDATE} for stage in stages if stage["stage"] == "update"],
        "doctor": [item for item in findings(arguments) if item["severity"] not in ("healthy", "not_checked")],
        "tasks": {split: outcomes(finished, chosen, split) for split in SPLITS},
    }
    return found, finished


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


def store(part: str, seed: int, found: dict[str, dict[str, Any]], path: Path = JSON) -> None:
    """Put results into a part of the JSON, with commit and machine; what is known of the tasks stands there once a seed."""
    results = json.loads(path.read_text()) if path.exists() else {}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    kept = results.setdefault(part, {}).setdefault(str(seed), {"tasks": {}, "policies": {}})
    for name, result in found.items():
        outcomes = result.pop("tasks")
        for split, columns in outcomes.items():
            tasks = {column: columns.pop(column) for column in OF_TASKS}
            if kept["tasks"].setdefault(split, tasks) != tasks:
                raise SystemExit(f"{part}, seed {seed}, {split}: other tasks than those of {path}; remove them first")
        kept["policies"][name] = {"commit": commit, "machine": machine(2), **result, "outcomes": outcomes}
    results[part] = dict(sorted(results[part].items()))
    path.write_text(json.dumps(results) + "\n")


def stored(part: str) -> dict[str, dict[str, dict[str, Any]]]:
    """By seed and policy, what is stored in a part of the JSON; `tasks` are tables by split."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for seed, kept in json.loads(JSON.read_text()).get(part, {}).items():
        found[seed] = {
            name: {**result, "tasks": {split: {**kept["tasks"][split], **result["outcomes"][split]} for split in SPLITS}}
            for name, result in kept["policies"].items()
        }
    return found


if __name__ == "__main__":
    main()
