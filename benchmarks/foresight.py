"""Foreseen against measured: what `retrain --dry-run` says that a run needs, and what the run then takes.

    python benchmarks/foresight.py configs/tiny-short.yaml --run-dir /tmp/foresight

Plans the run in an empty folder with `resources.measure=always`, runs it, and prints peak memory and seconds by stage, foreseen
and measured, with their ratio. `--set` is passed on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

MODEL_WORK = ("warm_start", "rollout", "update", "evaluate")
KIB, GIB = 1024, 1 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    arguments = parser.parse_args()
    if arguments.run_dir.exists():
        parser.error(f"--run-dir {arguments.run_dir}: exists; the comparison needs an empty folder")
    settings = [*arguments.overrides, "resources.measure=always"]
    command = [sys.executable, "-m", "flows.cli", "retrain", arguments.profile, "--run-dir", str(arguments.run_dir), "--json"]
    command += [part for setting in settings for part in ("--set", setting)]
    plan, _ = run([*command, "--dry-run"])
    summary, peak = run(command)
    print("| | foreseen | measured | ratio |\n|---|---:|---:|---:|")
    for need in plan["memory"]:
        if need["device"] == "main memory":
            row("peak memory, GiB", need["peak_bytes"] / GIB, peak / GIB)
    planned = {stage["stage"]: stage["estimated_seconds"] for stage in plan["stages"]}
    taken = summary["seconds"]
    for stage in MODEL_WORK:
        row(f"{stage}, s", planned[stage], taken[stage])
    row("all of these, s", sum(planned[stage] for stage in MODEL_WORK), sum(taken[stage] for stage in MODEL_WORK))


def run(command: list[str]) -> tuple[dict[str, Any], int]:
    """What a command prints as JSON, and the peak of its memory in bytes."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 3):
        sys.exit(f"{' '.join(command)}: exit status {os.waitstatus_to_exitcode(status)}")
    return json.loads(said), usage.ru_maxrss * KIB


def row(name: str, foreseen: float, measured: float) -> None:
    print(f"| {name} | {foreseen:.2f} | {measured:.2f} | {foreseen / measured:.2f} |")


if __name__ == "__main__":
    main()
