"""Measures what the loop learns in a world of a profile of its own, on several seeds.

    python worlds.py assistant --seeds 0 1 2
    python worlds.py smollm2 --seeds 0          # after `make demo-smollm2`, which fetches the weights

Makes the world's logs and its tiny base, where it has one, if they are not there, runs `tracewheel retrain
configs/WORLD.yaml` once per seed, and prints JSON and tables: held-out success of the base, of the warm start and after
reinforcement learning, and the paired differences of the last two, of the kind that the gate reads. `--runs` prints the
tables of finished runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
from learning import retrain

from tracewheel.config import load_config
from tracewheel.core.files import read_table
from tracewheel.core.run_record import RunRecord
from tracewheel.curation.curated_folder import TASKS_FILE
from tracewheel.evaluation.evaluate import RESULTS_FILE
from tracewheel.evaluation.family_differences import paired_differences
from tracewheel.report.finished_run import FinishedRun

POLICIES = {
    "deployed": "deployed agent (as logged)",
    "base": "base",
    "warm_start": "warm start, all logs",
    "warm_start_verified": "warm start, verified logs",
    "rl": "after RL",
}
FIGURES = {"greedy": 1.0, "sampled": 0.0, "the gate's": 0.5}  # weight of greedy success


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the runs, as threads=1")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--runs", type=Path, nargs="+", help="folders of finished runs, instead of new ones")
    arguments = parser.parse_args()
    if arguments.runs:
        read = {folder: json.loads((folder / "summary.json").read_text()) for folder in arguments.runs}
        summaries = [{**summary, "report": str(folder / "report.html")} for folder, summary in read.items()]
    else:
        prepare(arguments.world)
        work = arguments.work or Path(f"runs/benchmark-{arguments.world}")
        summaries = []
        for seed in arguments.seeds:
            summaries.append(retrain(f"configs/{arguments.world}.yaml", seed, work / f"seed-{seed}", *arguments.set))
            print(f"seed {seed}: gate {summaries[-1]['gate']['verdict']}", file=sys.stderr, flush=True)
    print(json.dumps(summaries))
    print(rates_table(summaries))
    for number, summary in enumerate(summaries):
        print(f"Run {number}, gate {summary['gate']['verdict']}:\n\n{gain_table(summary)}")


def rates_table(summaries: list[dict[str, Any]]) -> str:
    """Markdown table: success of each policy, greedy / sampled / greedy on the harder tier, a column for each run."""
    lines = ["| policy | " + " | ".join(f"run {number}" for number, _ in enumerate(summaries)) + " |"]
    lines.append("|---|" + "---|" * len(summaries))
    for policy, label in POLICIES.items():
        cells = []
        for summary in summaries:
            rates = [summary[key].get(policy) for key in ("success", "sampled", "harder")]
            cells.append(" / ".join("–" if rate is None else f"{rate:.3f}" for rate in rates))
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def gain_table(summary: dict[str, Any]) -> str:
    """Markdown tables: held-out success after RL minus that of each policy without it, paired, with 95% intervals.

    With several environments, for each of them; and for each family.
    """
    folder = Path(summary["report"]).parent
    finished = FinishedRun(RunRecord(folder.parent, folder.name))
    curated = read_table(finished.curated / TASKS_FILE, ["id", "environment"]).set_index("id")
    after = _results(finished, "rl")
    tasks = curated["environment"].reindex(after["task_id"])
    groups = {"all": after["task_id"]}
    if tasks.nunique() > 1:
        groups |= {str(kind): after["task_id"][(tasks == kind).to_numpy()] for kind in sorted(tasks.unique())}
    groups |= {str(family): rows["task_id"] for family, rows in after.groupby("family")}
    lines = []
    for policy in (name for name in POLICIES if name != "rl" and name in finished.policies):
        lines.append(f"| held-out tasks | tasks | {POLICIES[policy]} | after RL | difference in points (95% interval) |")
        lines.append("|---|---:|---:|---:|---:|")
        lines += _gains(after, _results(finished, policy), groups)
        lines.append("")
    return "\n".join(lines)


def _results(finished: FinishedRun, policy: str) -> pd.DataFrame:
    stored = finished.evaluation(policy)
    assert stored is not None
    return pd.read_parquet(stored.path / RESULTS_FILE)


def _gains(after: pd.DataFrame, before: pd.DataFrame, groups: dict[str, pd.Series]) -> list[str]:
    """A row for each group of tasks and each figure."""
    lines = []
    for name, chosen in groups.items():
        new, old = (table[table["task_id"].isin(chosen)] for table in (after, before))
        for figure, weight in FIGURES.items():
            row = paired_differences(new, old, greedy_weight=weight)["rows"][0]
            low, high = row["interval"]
            rates = [weight * table["greedy"].mean() + (1 - weight) * sampled_rate(table) for table in (old, new)]
            lines.append(
                f"| {name}, {figure} | {row['tasks']} | {rates[0]:.3f} | {rates[1]:.3f} "
                f"| {100 * row['difference']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}) |"
            )
    return lines


def sampled_rate(results: pd.DataFrame) -> float:
    """The share of sampled episodes that are successes."""
    return float(results["sampled_successes"].sum() / max(results["sampled_attempts"].sum(), 1))


def prepare(world: str) -> None:
    """Make what the world's profile reads, as `make demo-WORLD` does."""
    for log in load_config(f"configs/{world}.yaml").ingest.paths:
        if not Path(log).exists():
            subprocess.run([sys.executable, "data/make_traces.py", Path(log).stem], check=True)
    recipe, base = Path(f"configs/{world}_base.yaml"), Path("data") / world / "base"
    if recipe.exists() and not base.exists():
        command = str(Path(sys.executable).with_name("tracewheel"))
        subprocess.run([command, "stage", "base-policy", str(recipe), "--out", str(base)], check=True)


if __name__ == "__main__":
    main()
