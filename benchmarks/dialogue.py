"""Measures what the loop learns in a dialogue: the refund desk with its simulated customer, on several seeds.

    python benchmarks/dialogue.py --seeds 0 1 2

Makes the logs and the tiny base if they are not there (the base takes about ten minutes of one thread), runs `tracewheel
retrain` once per seed, and prints JSON and the tables of docs/dialogue.md. `--runs` prints those of finished runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
from learning import retrain, table_of

from tracewheel.comparison.finished_run import FinishedRun
from tracewheel.comparison.paired import paired_differences
from tracewheel.core.run_record import RunRecord
from tracewheel.evaluation.evaluate import RESULTS_FILE

PROFILE = "configs/refund_desk.yaml"
DATA = Path("data/refund_desk")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--work", type=Path, default=Path("runs/benchmark-dialogue"))
    parser.add_argument("--runs", type=Path, nargs="+", help="folders of finished runs, instead of new ones")
    arguments = parser.parse_args()
    if arguments.runs:
        runs = [json.loads((folder / "summary.json").read_text()) for folder in arguments.runs]
    else:
        _prepare()
        runs = [retrain(PROFILE, seed, arguments.work / f"seed-{seed}") for seed in arguments.seeds]
    results = {str(number): {"run": run, "controls": {}} for number, run in enumerate(runs)}
    print(json.dumps(results))
    print(table_of(results))
    for number, run in enumerate(runs):
        print(f"Seed {number}:\n\n{gain_table(Path(run['report']).parent)}")


def gain_table(run: Path) -> str:
    """Markdown table: held-out greedy success by family, RL minus the verified warm start, paired, with 95% intervals."""
    finished = FinishedRun(RunRecord(run.parent, run.name))
    stored = [finished.evaluation(policy) for policy in ("rl", "warm_start_verified")]
    after, before = (pd.read_parquet(entry.path / RESULTS_FILE) for entry in stored if entry is not None)
    rows = paired_differences(after, before, greedy_weight=1.0)["rows"]
    lines = ["| family | tasks | warm start | after RL | difference in points (95% interval) |", "|---|---:|---:|---:|---:|"]
    for row in rows:
        rates = [
            (table if row is rows[0] else table[table["family"] == row["family"]])["greedy"].mean() for table in (before, after)
        ]
        low, high = row["interval"]
        lines.append(
            f"| {row['family']} | {row['tasks']} | {rates[0]:.3f} | {rates[1]:.3f} "
            f"| {100 * row['difference']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}) |"
        )
    return "\n".join(lines) + "\n"


def _prepare() -> None:
    """Make what the profile reads, as `make demo-refund-desk` does."""
    if not (DATA / "refund_desk.jsonl").exists():
        subprocess.run([sys.executable, "data/make_traces.py", "refund_desk"], check=True)
    if not (DATA / "base").exists():
        command = str(Path(sys.executable).with_name("tracewheel"))
        subprocess.run([command, "base-policy", "configs/refund_desk_base.yaml", "--out", str(DATA / "base")], check=True)


if __name__ == "__main__":
    main()
