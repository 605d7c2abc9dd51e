"""`tracewheel retrain` on daily slices of the shipped log: what happens to the splits and to the gate from run to run.

    python benchmarks/daily_slices.py --json benchmarks/results/daily_slices.json      # 12 retrains, some minutes each on two cores

The log is cut into as many pieces of equal length, in the order of time; each day's run reads all pieces up to that day, in one
work folder, from the command line, as a job at night does. The profile is configs/tiny-short.yaml with sets that the first
piece can fill, and the day's number as its seed, so that each night has a challenger of its own. Prints JSON and a table: the
ledger of splits, the gate, and how many of the day's held-out and harder tasks an earlier day trained or selected on, counted
from the curations in the store and not from the record.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measuring import emit, environment, machine, table

REFUSED = 3  # the exit code of a run whose gate refused
ROOT = Path(__file__).parents[1]
LOG, PROFILE = ROOT / "data/traces/workspace.jsonl", ROOT / "configs/tiny-short.yaml"
SMALL = {
    "curation.train_tasks": 6,
    "curation.validation_tasks": 6,
    "curation.held_out_tasks": 16,
    "curation.harder_tasks": 3,
    "curation.min_attempts": 1,
    # Enough steps on a few demonstrations that the policy moves: otherwise each night's challenger is the base.
    "warm_start.epochs": 20,
    "warm_start.batch_size": 8,
    "rollout.group_size": 4,
    "training.iterations": 1,
    "training.tasks_per_iteration": 4,
    "evaluation.samples": 1,
    "evaluation.pass_at": "[1]",
    "gate.min_pairs": 10,
    "gate.gates_per_year": 12,
    "threads": 1,
}


def run_day(lines: list[bytes], work: Path, seed: int) -> dict[str, Any]:
    """One retrain on these lines of the log; the summary that it prints."""
    log = work / "log.jsonl"
    log.write_bytes(b"".join(lines))
    settings = [f"{name}={value}" for name, value in ({"ingest.paths": f"[{log}]", "seed": seed} | SMALL).items()]
    pairs = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "flows.cli", "retrain", str(PROFILE), "--run-dir", str(work / "run"), "--json", *pairs]
    done = subprocess.run(command, cwd=ROOT, env=environment(1), capture_output=True, text=True, check=False)
    if done.returncode not in (0, REFUSED):
        raise SystemExit(f"retrain ended with {done.returncode}\n{done.stderr[-3000:]}")
    summaries = sorted((work / "run").glob("*/summary.json"), key=lambda path: path.stat().st_mtime)
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else json.loads(summaries[-1].read_text())
    return found


def day_of(summary: dict[str, Any], work: Path, used: dict[str, set[str]]) -> dict[str, Any]:
    """The figures of a run; `used` has the tasks that earlier days trained and selected on, and gets this day's."""
    import pandas

    loop = json.loads((work / "run" / summary["run_id"] / "loop.json").read_text())
    tasks = pandas.read_parquet(work / "run/store" / loop["curated"] / "tasks.parquet")
    held = set(tasks.loc[tasks["split"].isin(["held_out", "harder"]), "fingerprint"])
    before = {f"{use}_before": len(held & names) for use, names in used.items()}
    for use, split in (("trained", "train"), ("selected", "validation")):
        used[use] |= set(tasks.loc[tasks["split"] == split, "fingerprint"])
    gate = summary["gate"]
    figures = {name: gate.get(name) for name in ("verdict", "baseline", "difference", "interval", "look", "level")}
    sizes = {str(split): int(count) for split, count in tasks["split"].value_counts().items()}
    return {"run": summary["run_id"], "sizes": sizes, "splits": summary["splits"], "gate": figures, "used_before": before}


def shown(days: list[dict[str, Any]]) -> str:
    """A row a day."""
    head = ["day", "traces", "train", "validation", "held out", "harder", "new tasks", "gave way (trained)", "retired held out"]
    head += ["first set still held out", "trained + selected on before", "look", "gate", "baseline", "difference", "level"]
    rows = []
    for number, day in enumerate(days, 1):
        splits, gate, first = day["splits"], day["gate"], day["splits"]["first_held_out"]
        sizes = [day["sizes"].get(name, 0) for name in ("train", "validation", "held_out", "harder")]
        did = [splits["new_tasks"], f"{splits['gave_way']} ({splits['gave_way_trained']})", splits["retired_held_out"]]
        before = f"{day['used_before']['trained_before']} + {day['used_before']['selected_before']}"
        judged = [gate["look"], gate["verdict"], gate["baseline"], gate["difference"], gate["level"]]
        rows.append([number, day["traces"], *sizes, *did, f"{first['still']} of {first['tasks']}", before, *judged])
    return table(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=12)
    parser.add_argument("--work", type=Path, help="work folder; a killed series goes on in it (default: a temporary folder)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    lines = LOG.read_bytes().splitlines(keepends=True)
    used: dict[str, set[str]] = {"trained": set(), "selected": set()}
    days: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        for number in range(1, options.days + 1):
            count = len(lines) * number // options.days
            day = {"traces": count} | day_of(run_day(lines[:count], work, number), work, used)
            days.append(day)
            print(f"day {number}: {day['splits']['says']} Gate: {day['gate']['verdict']}", file=sys.stderr, flush=True)
            if options.json:  # a series that is cut off leaves the days that it has
                emit({"machine": machine(1), "settings": SMALL, "days": days}, shown(days), options.json)
    emit({"machine": machine(1), "settings": SMALL, "days": days}, shown(days), options.json)


if __name__ == "__main__":
    main()
