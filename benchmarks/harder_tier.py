"""What a finished run of the demo solves of tasks with four and five files, over its iterations, and how its failures end.

    make demo
    python benchmarks/harder_tier.py runs

The folder is that of the run (`--run-dir`). The tasks are new, 40 a family and tier; no training task moves more than four
files. Prints greedy success by policy, tier and family, and of each failure the number of files that it moved.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from measuring import machine

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.config import EvaluateSections
from tracewheel.core.run_record import find_runs
from tracewheel.core.types import Task
from tracewheel.curation.curated_folder import TASKS_FILE
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.evaluation.evaluate import RESULTS_FILE, evaluate
from tracewheel.policy.adapters import PolicyRef

TIERS, TASKS, TASKS_SEED, SAMPLING_SEED = (4, 5), 40, 20261126, 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--iterations", type=int, nargs="+", default=[12, 24, 36, 48])
    arguments = parser.parse_args()
    finished = run_in(arguments.run_dir)
    rng = random.Random(TASKS_SEED)
    tasks = [make_task(family, tier, rng) for tier in TIERS for family in FAMILIES for _ in range(TASKS)]
    if known := set(pd.read_parquet(finished.curated / TASKS_FILE)["fingerprint"]) & {task.fingerprint for task in tasks}:
        raise SystemExit(f"{len(known)} tasks are the run's too; take another TASKS_SEED")
    tables = []
    for name, policy in policies(finished, arguments.iterations).items():
        outcomes = outcomes_of(finished, policy, tasks)
        by = outcomes.groupby(["tier", "family"])["greedy"].mean().unstack()
        by.insert(0, "all", outcomes.groupby("tier")["greedy"].mean())
        failures = outcomes[outcomes["greedy"] == 0]
        moved = [failures.loc[failures["tier"] == tier, "moved"].value_counts().sort_index() for tier in by.index]
        by["failures by files moved"] = [", ".join(f"{count} x {files}" for files, count in each.items()) for each in moved]
        tables.append(by.reset_index().assign(policy=name).set_index("policy"))
    print(json.dumps(machine(finished.config.threads)))
    print(pd.concat(tables).round(3).to_markdown())


def run_in(folder: Path) -> FinishedRun:
    """The newest complete run of a folder."""
    complete = [record for record in find_runs(folder) if record.summary]
    if not complete:
        raise SystemExit(f"{folder}: no complete run; run `make demo` first")
    return FinishedRun(complete[0])


def policies(finished: FinishedRun, iterations: Sequence[int]) -> dict[str, PolicyRef]:
    """By name: the base, the warm start on verified logs, and the policies after some iterations."""
    base, wanted = finished.config.policy.base, {"warm_start verified": "warm start"}
    wanted |= {f"update {number} of {finished.config.training.iterations}": f"RL, iteration {number}" for number in iterations}
    found = {"base": PolicyRef(base)}
    for entry in finished.of_stage("warm_start", "update"):
        if name := wanted.get(entry.made.get("label", "")):
            found[name] = PolicyRef(base, str(entry.path / "adapter"), 0)
    return found


def outcomes_of(finished: FinishedRun, policy: PolicyRef, tasks: list[Task]) -> pd.DataFrame:
    """By task: family, tier, greedy success, and the number of files that the greedy episode moved."""
    with tempfile.TemporaryDirectory() as folder:
        evaluate(EvaluateSections.of(finished.config), policy, tasks, Path(folder), samples=1, seed=SAMPLING_SEED)
        results = pd.read_parquet(Path(folder) / RESULTS_FILE).set_index("task_id")
        episodes = pd.read_parquet(Path(folder) / "greedy" / "trajectories.parquet").set_index("task_id")
    calls = episodes["messages"].map(lambda text: [call for turn in json.loads(text) for call in turn.get("tool_calls") or ()])
    moved = calls.map(lambda made: sum(call["function"]["name"] == "move_file" for call in made))
    return results[["family", "tier", "greedy"]].assign(moved=moved)


if __name__ == "__main__":
    main()
