"""A whole `tracewheel retrain`, from nothing: time and peak memory by stage, agreement of sampler and learner, findings.

`python benchmarks/whole_run.py configs/smollm2.yaml --run-dir /tmp/run --json /tmp/whole.json` starts the command in a
process of its own and samples the memory of its process tree (resident, shared pages counted once for each process) twice a
second. A stage's peak is the highest sample between its begin and its end; stages before a stored result cost nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from measuring import emit, environment, machine, table

EVERY_SECONDS = 0.5
MISMATCH = ("sampler_mismatch_mean", "sampler_mismatch_max")
UPDATE = ("reward", "kl", "entropy", "zero_variance_share", "grad_norm", *MISMATCH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="KEY=VALUE")
    parser.add_argument("--run-dir", type=Path, required=True, help="a folder that does not exist yet")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the figures here, and the tables beside it")
    arguments = parser.parse_args()
    if arguments.run_dir.exists():
        parser.error(f"--run-dir: {arguments.run_dir} exists; a measured run starts from nothing")
    wall, samples, summary = run(arguments)
    stages = stages_of(arguments.run_dir / "store", samples)
    result = {
        "command": " ".join(sys.argv),
        "machine": machine(arguments.threads),
        "wall_s": wall,
        "peak_gb": max(size for _, size in samples) / 1e9,
        "stages": stages,
        "doctor": findings(arguments),
        "summary": summary,
    }
    emit(result, tables(result), arguments.json)


def run(arguments: argparse.Namespace) -> tuple[float, list[tuple[float, int]], dict[str, Any]]:
    """Run the command; returns wall seconds, (time, bytes) samples, and the run's summary."""
    samples: list[tuple[float, int]] = []
    started = time.time()
    command = [*tracewheel("retrain", arguments), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(arguments.threads)) as child:
        process = psutil.Process(child.pid)
        while child.poll() is None:
            samples.append((time.time(), tree_bytes(process)))
            time.sleep(EVERY_SECONDS)
        assert child.stdout is not None
        printed = child.stdout.read()
    if child.returncode not in (0, 3):
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    return time.time() - started, samples, json.loads(printed)


def tracewheel(command: str, arguments: argparse.Namespace) -> list[str]:
    settings = [f"--set={override}" for override in arguments.overrides]
    return [sys.executable, "-m", "flows.cli", command, arguments.profile, *settings, "--run-dir", str(arguments.run_dir)]


def tree_bytes(process: psutil.Process) -> int:
    """Resident memory of a process and its descendants, 0 once it has ended."""
    total = 0
    try:
        for part in [process, *process.children(recursive=True)]:
            total += part.memory_info().rss
    except psutil.NoSuchProcess:
        pass
    return total


def stages_of(store: Path, samples: list[tuple[float, int]]) -> list[dict[str, Any]]:
    """The stages in the order in which they ended: seconds, peak, and what they returned."""
    records = []
    for path in (store / ".facts").glob("*.json"):
        facts = json.loads(path.read_text())
        begun = facts["finished"] - facts["seconds"]
        during = [size for at, size in samples if begun - EVERY_SECONDS <= at <= facts["finished"] + EVERY_SECONDS]
        stage = path.stem.rpartition("-")[0]
        peak = max(during, default=0) / 1e9
        records.append(
            {"stage": stage, "at": facts["finished"], "seconds": facts["seconds"], "peak_gb": peak, "result": facts["result"]}
        )
    return sorted(records, key=lambda record: record.pop("at"))


def findings(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """What `tracewheel doctor` says about the run."""
    done = subprocess.run(
        [*tracewheel("doctor", arguments), "--json"], capture_output=True, text=True, env=environment(arguments.threads)
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return found


def tables(result: dict[str, Any]) -> str:
    stages: list[dict[str, Any]] = result["stages"]
    by_stage = [[record["stage"], record["seconds"], record["peak_gb"]] for record in stages]
    by_stage.append(["all", result["wall_s"], result["peak_gb"]])
    updates = [record["result"] for record in stages if record["stage"] == "update"]
    by_update = [[str(number), *(update.get(name) for name in UPDATE)] for number, update in enumerate(updates, start=1)]
    said = "\n".join(
        f"- {item['severity']}: {item['check']}, {item['evidence']}; {item['advice']}" for item in result["doctor"]
    )
    parts = [table(["stage", "seconds", "peak GB"], by_stage), table(["update", *UPDATE], by_update), said or "No findings."]
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
