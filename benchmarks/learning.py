"""Measures what the loop learns and how much reinforcement learning adds, on several seeds and with controls.

    python benchmarks/learning.py --seeds 0 1 2

Runs `tracewheel retrain` once per seed, then two controls from the same warm start: as many optimiser
steps on the replay text alone (the contribution of replay to the harder tier), and the same reinforcement
learning without the action mask, so that the loss covers tool replies. The late policies with and without it
are compared task by task, whatever validation chose: several together, because one alone wavers. Prints
a table; writes `results/learning.json`, `results/learning.md` and `results/learning.png`. `--label` gives the seeds of another
kind of machine a name, and keeps the results of others beside them; `--show` writes table and picture again from the JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from measuring import points, together
from methods import difference_of
from stage_loop import curated_logs, stage_loop, warm_started

from tracewheel.config import EvaluateSections, RetrainConfig, UpdateSections, load_config
from tracewheel.core.run_record import RunRecord
from tracewheel.curation.curated_folder import load_tasks
from tracewheel.evaluation.evaluate import RESULTS_FILE, evaluate
from tracewheel.evaluation.family_differences import paired_differences
from tracewheel.learner.batch import micro_batches
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.learner.learner import Learner
from tracewheel.learner.models import POLICY
from tracewheel.policy.adapters import PolicyRef, write_adapter
from tracewheel.policy.loading import load_for_generation
from tracewheel.report.finished_run import FinishedRun
from tracewheel.sampling.seeds import evaluation_seed

POLICIES = {
    "deployed": "deployed agent (as logged)",
    "base": "base",
    "warm_start": "warm start, all logs",
    "warm_start_verified": "warm start, verified logs",
    "rl": "after RL",
}
CONTROLS = {
    "replay_only": "warm start + replay text alone",
    "mask": "RL, late policies",
    "no_mask": "RL without the action mask, late policies",
}
LATE = 5  # so many of the last policies that validation looked at
SPLITS = ("held_out", "harder")
PLACES = ("adapter", "report", "mlflow_run", "mlflow_uri")  # in a run's summary, and of no use elsewhere


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="configs/tiny.yaml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path("runs/benchmark-learning"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--control-seeds", type=int, nargs="*", help="seeds to run the controls for (default: all)")
    parser.add_argument("--label", default="", metavar="TEXT", help="follows the seed, as ' on AVX-512'")
    parser.add_argument("--show", action="store_true", help="from what is stored, without any run")
    arguments = parser.parse_args()
    known = arguments.out / "learning.json"
    results = json.loads(known.read_text()) if (arguments.label or arguments.show) and known.exists() else {}
    for seed in () if arguments.show else arguments.seeds:
        run_dir = arguments.work / f"seed-{seed}"
        run = retrain(arguments.profile, seed, run_dir)
        config = load_config(arguments.profile, [f"seed={seed}"])
        wanted = arguments.control_seeds is None or seed in arguments.control_seeds
        updates = [entry.path for entry in FinishedRun(RunRecord(run_dir, run["run_id"])).of_stage("update")]
        controls = _controls(config, updates, arguments.work / f"controls-{seed}") if wanted else {}
        kept = {key: value for key, value in run.items() if key not in PLACES}
        results[f"{seed}{arguments.label}"] = {"run": kept, "controls": controls}
        print(f"seed {seed}: RL {run['success']['rl']:.3f}, harder {run['harder']['rl']:.3f}", file=sys.stderr)
    arguments.out.mkdir(parents=True, exist_ok=True)
    known.write_text(json.dumps(results, indent=2) + "\n")
    table = table_of(results)
    (arguments.out / "learning.md").write_text(table)
    _plot(results, arguments.out / "learning.png")
    print(table)


def retrain(profile: str, seed: int, run_dir: Path, *settings: str) -> dict[str, Any]:
    """Run the command line as a user would, with these settings; a refusal by the gate (exit code 3) is a result too."""
    given = [part for setting in (f"seed={seed}", *settings) for part in ("--set", setting)]
    command = ["tracewheel", "retrain", profile, *given, "--run-dir", str(run_dir), "--json"]
    done = subprocess.run([str(Path(sys.executable).with_name("tracewheel")), *command[1:]], stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def _controls(config: RetrainConfig, updates: list[Path], work: Path) -> dict[str, Any]:
    """The two controls from the verified (or all-logs) warm start that the profile names, beside the run's late policies."""
    torch.set_num_threads(config.threads)
    curated = curated_logs(config, work / "curated")
    start = warm_started(config, curated, work / "warm")
    without_mask(config, curated, start, work / "no_mask")
    late = range(config.training.iterations, 0, -config.training.validate_every)[:LATE]
    adapters = {
        "replay_only": [_replay_only(config, start / "adapter", work / "replay_only")],
        "mask": [updates[iteration - 1] / "adapter" for iteration in late],
        "no_mask": [work / "no_mask" / f"{iteration:03d}" / "adapter" for iteration in late],
    }
    outcomes = {name: _outcomes(config, curated, policies, work / "evaluations" / name) for name, policies in adapters.items()}
    rates = {name: {split: _rates(table) for split, table in tables.items()} for name, tables in outcomes.items()}
    return {**rates, "worth_of_mask": _worth_of_mask(outcomes)}


def _outcomes(config: RetrainConfig, curated: Path, adapters: list[Path], work: Path) -> dict[str, pd.DataFrame]:
    """By split, what policies gave on each task, all of them together."""
    found = {}
    for split in SPLITS:
        tasks, seed, tables = load_tasks(curated, split), evaluation_seed(config.seed, split), []
        for number, adapter in enumerate(adapters):
            out = work / split / str(number)
            out.mkdir(parents=True, exist_ok=True)
            policy = PolicyRef(config.policy.base, str(adapter), config.training.iterations)
            evaluate(EvaluateSections.of(config), policy, tasks, out, samples=config.evaluation.samples, seed=seed)
            tables.append(pd.read_parquet(out / RESULTS_FILE))
        found[split] = together(tables)
    return found


def _rates(outcomes: pd.DataFrame) -> dict[str, float]:
    sampled = outcomes["sampled_successes"].sum() / outcomes["sampled_attempts"].sum()
    return {"greedy": float(outcomes["greedy"].mean()), "sampled": float(sampled)}


def _worth_of_mask(outcomes: dict[str, dict[str, pd.DataFrame]]) -> dict[str, Any]:
    """By split, the paired difference of the late policies with and without the action mask, greedy and sampled."""
    return {
        split: {
            mode: paired_differences(outcomes["mask"][split], outcomes["no_mask"][split], greedy_weight=weight)["rows"][0]
            for mode, weight in (("greedy", 1.0), ("sampled", 0.0))
        }
        for split in SPLITS
    }


def _replay_only(config: RetrainConfig, start: Path, out: Path) -> Path:
    """Take as many optimiser steps as reinforcement learning does, on the replay text alone and at its weight."""
    learner = Learner(UpdateSections.of(config), start.parent, start)
    rng = random.Random(f"replay-only-{config.seed}")
    for _ in range(config.training.iterations * config.learner.epochs * config.learner.minibatches):
        learner.learn_texts(rng)
        learner.backend.step(config.learner.rate())
    write_adapter(learner.models.model, out, POLICY, config.policy.base, version=1)
    return out


def without_mask(
    config: RetrainConfig, curated: Path, start: Path, work: Path, drawn: int | None = None
) -> tuple[Path, list[dict[str, Any]]]:
    """Run the same loop, with everything after the prompt treated as sampled by the policy. As `stage_loop` otherwise."""
    return stage_loop(config, curated, start, work, drawn=drawn, change=partial(unmask, config))


def unmask(config: RetrainConfig, policy: PolicyRef, trajectories: Path) -> None:
    """Set the action mask on observations too, with the policy's log-probabilities of them."""
    table = pd.read_parquet(trajectories)
    first = [list(mask).index(1) for mask in table["action_mask"]]
    table["action_mask"] = [[0] * n + [1] * (len(ids) - n) for n, ids in zip(first, table["token_ids"], strict=True)]
    model = load_for_generation(config.policy, policy)
    logprobs: list[list[float]] = [[] for _ in range(len(table))]
    for batch in micro_batches(table, [0.0] * len(table), config.learner.micro_batch_tokens):
        with torch.no_grad():
            values = action_logprobs(model, batch.to(config.policy.device))[0].cpu()
        for row, position in enumerate(batch.rows.tolist()):
            logprobs[position] = values[row, : len(table["token_ids"].iloc[position])].tolist()
    table["logprobs"] = logprobs
    table.to_parquet(trajectories, index=False)


def table_of(results: dict[str, Any]) -> str:
    """Markdown table: one row per policy; greedy and sampled held-out success and the harder tier, by seed."""
    seeds = list(results)
    lines = ["| policy | " + " | ".join(f"seed {seed}: greedy / sampled / harder" for seed in seeds) + " |"]
    lines.append("|---|" + "---|" * len(seeds))
    for name, label in POLICIES.items():
        cells = [_cells(*(results[seed]["run"][key].get(name) for key in ("success", "sampled", "harder"))) for seed in seeds]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    for name, label in CONTROLS.items():
        controls = [results[seed]["controls"].get(name, {}) for seed in seeds]
        cells = [
            _cells(
                *(
                    c.get(split, {}).get(mode)
                    for split, mode in (("held_out", "greedy"), ("held_out", "sampled"), ("harder", "greedy"))
                )
            )
            for c in controls
        ]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    without = {
        seed: max(results[seed]["run"]["success"].get(name, 0.0) for name in ("base", "warm_start", "warm_start_verified"))
        for seed in seeds
    }
    after = {seed: results[seed]["run"]["success"]["rl"] for seed in seeds}
    said = ", ".join(f"{100 * (after[seed] - without[seed]):+.1f}" for seed in seeds)
    lines += ["", f"Gain of RL over the best policy without it, in points: {said}"]
    own = [seed for seed in seeds if seed.isdigit()]  # those with a label repeat a seed
    if len(own) > 1:
        found = difference_of([after[seed] for seed in own], [without[seed] for seed in own])
        lines.append(f"Over the {len(own)} seeds without a label (95%, on these tasks): {found.says} points.")
    lines.append("")
    for seed in seeds:
        run = results[seed]["run"]
        lines.append(
            f"Seed {seed}, in points: gate {run['gate']['verdict']} against {run['gate']['baseline']}, {points(run['gate'])}; "
            f"harder tier against the verified warm start {points(run['harder_differences']['warm_start_verified'])}."
        )
        if worth := results[seed]["controls"].get("worth_of_mask"):
            said = [f"{split.replace('_', ' ')} {mode} {points(row)}" for split in SPLITS for mode, row in worth[split].items()]
            lines.append(f"Seed {seed}, in points: late policies with the action mask minus those without: {', '.join(said)}.")
    return "\n".join(lines) + "\n"


def _cells(*rates: float | None) -> str:
    return " / ".join("–" if rate is None else f"{rate:.3f}" for rate in rates)


def _plot(results: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (held_out, harder) = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    width = 0.8 / len(results)
    for axis, key, title in ((held_out, "success", "held-out tasks"), (harder, "harder", "harder tier")):
        for number, (seed, result) in enumerate(results.items()):
            values = [result["run"][key].get(name) or 0.0 for name in POLICIES]
            split = "held_out" if key == "success" else "harder"
            values += [result["controls"].get(name, {}).get(split, {}).get("greedy", 0.0) for name in CONTROLS]
            positions = [i + number * width for i in range(len(values))]
            axis.bar(positions, values, width=width * 0.92, label=f"seed {seed}")
        axis.set_xticks([i + 0.4 - width / 2 for i in range(len(POLICIES) + len(CONTROLS))])
        axis.set_xticklabels([*POLICIES.values(), *CONTROLS.values()], rotation=28, ha="right", fontsize=8)
        axis.set_title(f"Greedy success, {title}")
        axis.set_ylim(0, 1)
        axis.grid(axis="y", alpha=0.3)
    harder.legend(fontsize=7, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
