"""Where most tasks are lost: reinforcement learning and imitation of fresh successes, each with and without rescue.

    python benchmarks/lost_tasks.py --seeds 0 1 2 3 4

The workspace with 6 to 8 files, of which the logs have at most 4: the verified warm start loses about nine first groups of
ten. Known solutions, the world's solver's in place of other users' logs, exist for 26 of 96 training tasks. All methods start
from a seed's warm start and sample equally many tokens; success is the last policy's on 48 held-out tasks of the same tiers,
the mean of greedy and sampled, without a choice on validation. Writes `results/lost_tasks.json` and `results/lost_tasks.md`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from measuring import table
from methods import difference_of, figures_of, method_table
from stage_loop import curated_logs, stage_loop, warm_started

from tracewheel.config import EvaluateSections, RetrainConfig, SolutionSections, load_config
from tracewheel.core.types import Task
from tracewheel.environments.workspace.agent import solution
from tracewheel.environments.workspace.environment import TOOLS, play
from tracewheel.environments.workspace.tasks import make_task
from tracewheel.evaluation.evaluate import RESULTS_FILE, evaluate_split
from tracewheel.learner.solutions import SOLUTIONS_FILE, find_solutions
from tracewheel.policy.adapters import PolicyRef
from tracewheel.sampling.lost_tasks import LostTasks
from tracewheel.scoring.score import SCORES_FILE

FAMILIES, TIERS = ("list", "content"), (6, 7, 8)
TRAIN, HELD_OUT, KNOWN = 96, 48, 26
SETTINGS = [
    "sampler.kind=uniform", "rollout.group_size=8", "training.tasks_per_iteration=24",
    "rollout.exploration.environment_args={}",
    "rollout.max_tokens=600", "threads=1",
]  # fmt: skip
RESCUE = "{rows: 24, sources: [logs, own]}"
METHODS = {
    "GRPO": ["learner.kind=grpo"],
    "rejection sampling": ["learner.kind=rejection_sampling", "learner.kl=0"],
    "GRPO, solutions join": ["learner.kind=grpo", f"learner.lost_tasks={RESCUE}"],
    "rejection sampling, solutions join": ["learner.kind=rejection_sampling", "learner.kl=0", f"learner.lost_tasks={RESCUE}"],
    "imitated first, then rejection sampling": [
        "learner.kind=rejection_sampling", "learner.kl=0",
        "learner.lost_tasks={rows: 24, sources: [logs, own], at_start: 24}",
    ],
}  # fmt: skip
CONTROL = "imitation alone"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--methods", nargs="+", choices=[*METHODS, CONTROL], default=[*METHODS, CONTROL])
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--work", type=Path, default=Path("runs/benchmark-lost-tasks"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    known = arguments.out / "lost_tasks.json"
    results: dict[str, Any] = json.loads(known.read_text()) if known.exists() else {}
    for seed in arguments.seeds:
        for name in ("warm start", *arguments.methods):
            found = played(name, seed, arguments)
            results.setdefault(name, {})[str(seed)] = found
            rates = figures_of([pd.DataFrame(found["tasks"])]).mean()
            print(f"seed {seed}, {name}: {rates:.3f}", file=sys.stderr)
            arguments.out.mkdir(parents=True, exist_ok=True)
            known.write_text(json.dumps(results) + "\n")
    text = table_of(results)
    known.with_suffix(".md").write_text(text)
    print(text)


def played(name: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """One method on one seed: its outcomes on the held-out tasks, and each iteration's figures."""
    loop = [f"training.iterations={1 if name == CONTROL else arguments.iterations}", *SETTINGS, *arguments.settings]
    own = METHODS.get(name, METHODS["imitated first, then rejection sampling"] if name == CONTROL else [])
    config = load_config("configs/tiny.yaml", [f"seed={seed}", *loop, *own])
    torch.set_num_threads(config.threads)
    work = arguments.work / f"seed-{seed}"
    start = warm_started(config, curated_logs(config, work / "curated"), work / "warm")
    hard_tasks(work / "tasks", seed)
    adapter, figures = start / "adapter", list[dict[str, Any]]()
    if name != "warm start":
        folder = work / name.replace(" ", "-").replace(",", "")
        adapter, figures = stage_loop(config, work / "tasks", start, folder, solutions=rescuer(config, work / "tasks"))
    return {"tasks": outcomes(config, work / "tasks", adapter, work / f"evaluated-{name}"), "iterations": figures}


def hard_tasks(folder: Path, seed: int) -> None:
    """Write training tasks, of which some have a known solution, and held-out ones, as a curation would."""
    rng = random.Random(f"lost-tasks-{seed}")
    made: dict[str, Task] = {}
    while len(made) < TRAIN + HELD_OUT:
        task = make_task(FAMILIES[len(made) % 2], TIERS[len(made) // 2 % 3], rng)
        made.setdefault(task.fingerprint, task)
    tasks = list(made.values())
    known = set(random.Random(seed).sample(range(TRAIN), KNOWN))
    rows = [
        {
            "trace_id": f"trace-{number}", "task_id": task.id, "split": "train", "success": float(number in known),
            "failure": "",
            "messages": json.dumps(play(task, solution(task) if number in known else solution(task)[:1])),
            "tools": json.dumps(TOOLS),
        }
        for number, task in enumerate(tasks[:TRAIN])
    ]  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    splits = ["train"] * TRAIN + ["held_out"] * HELD_OUT
    records = [task.to_record() | {"split": split} for task, split in zip(tasks, splits, strict=True)]
    pd.DataFrame(records).to_parquet(folder / "tasks.parquet", index=False)
    pd.DataFrame(rows).to_parquet(folder / "episodes.parquet", index=False)


def rescuer(config: RetrainConfig, curated: Path) -> Callable[[int, Path], Path | None]:
    """Finds solutions as a run does, without a teacher."""
    assert config.learner.kind != "dpo"
    settings = config.learner.lost_tasks
    table = pd.read_parquet(curated / "tasks.parquet").query("split == 'train'")
    kin = {str(row.id): (str(row.family), int(row.tier)) for row in table.itertuples()}
    lost, folders = LostTasks(settings.after_groups if settings else 1, kin), dict[int, Path]()

    def see(iteration: int, folder: Path) -> Path | None:
        lost.observe(iteration, [folder / SCORES_FILE])
        folders[iteration] = folder
        if not settings or not lost.ids:
            return None
        own = [(folders[number],) * 2 for number in sorted({lost.won_in[i] for i in lost.ids if i in lost.won_in})]
        out = folder / "solutions"
        found = find_solutions(SolutionSections.of(config), curated, lost.ids, out, own=own)
        return out / SOLUTIONS_FILE if found["sources"] else None

    return see


def outcomes(config: RetrainConfig, curated: Path, adapter: Path, out: Path) -> dict[str, list[Any]]:
    """Greedy and sampled outcomes of a policy, by task."""
    out.mkdir(parents=True, exist_ok=True)
    evaluate_split(EvaluateSections.of(config), PolicyRef(config.policy.base, str(adapter), 0), curated, "held_out", out)
    rows = pd.read_parquet(out / RESULTS_FILE)
    return {name: rows[name].tolist() for name in ("task_id", "greedy", "sampled_successes", "sampled_attempts")}


def table_of(results: dict[str, Any]) -> str:
    """The tables in Markdown."""
    seeds = sorted({seed for by_seed in results.values() for seed in by_seed}, key=int)
    rates = {
        name: {seed: float(figures_of([pd.DataFrame(found["tasks"])]).mean()) for seed, found in by_seed.items()}
        for name, by_seed in results.items()
    }
    rows = [
        [name, *(f"{of[seed]:.3f}" if seed in of else "-" for seed in seeds), f"{sum(of.values()) / len(of):.3f}"]
        for name, of in rates.items()
    ]
    text = table(["method", *(f"seed {seed}" for seed in seeds), "mean"], rows)
    base = rates.get("rejection sampling", {})
    shared = {name: sorted(of.keys() & base.keys()) for name, of in rates.items() if name != "rejection sampling"}
    differences = {
        f"{name} minus rejection sampling": difference_of([rates[name][s] for s in both], [base[s] for s in both])
        for name, both in shared.items()
        if len(both) > 1
    }
    return text + ("\n" + method_table(differences) if differences else "")


if __name__ == "__main__":
    main()
