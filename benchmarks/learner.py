"""One update of ours against one of TRL's GRPOTrainer, on the same trajectories, model and adapter.

    python benchmarks/learner.py                         # V = 150,000, T = 2,048, a group of 8
    python benchmarks/learner.py --hidden 896 --layers 24 --intermediate 4864 --heads 14 --key-heads 2
    python benchmarks/learner.py --base FOLDER --dtype bfloat16 --vocabulary 49152 --tokens 320 --prompt 0.33 --action 40
    python benchmarks/learner.py --scaling tokens        # T from 512 upwards; also: rows, vocabulary

Each update runs in a process of its own, on `--threads` threads: from the trajectories as lists of
token ids to the weights after the optimiser's step. Both sides train the same float32 LoRA adapter
on the token-level clipped loss (on a GPU: `benchmarks/gpu`). TRL gets the trajectories through its `rollout_func` and runs with
several micro-batch sizes, with and without gradient checkpointing; its best setting counts, for time
and for memory separately. Prints JSON and a table; `--out` writes them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict, fields, replace
from datetime import date
from pathlib import Path
from typing import Any

import torch
from learner_workload import Workload, prepare

SIDES = Path(__file__).parent / "learner_sides.py"
SCALING = {
    "tokens": [512, 1024, 2048, 4096, 8192, 16384, 32768],
    "rows": [2, 4, 8, 16, 32],
    "vocabulary": [1000, 8000, 32000, 75000, 150000, 256000],
}
FIELD = {"tokens": "tokens", "rows": "group", "vocabulary": "vocabulary"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for spec in fields(Workload):
        parser.add_argument(f"--{spec.name.replace('_', '-')}", type=type(spec.default), default=spec.default)
    parser.add_argument("--micro-batch-tokens", type=int, nargs="+", default=[4096], help="ours; several are tried in turn")
    parser.add_argument("--layouts", nargs="+", default=["padded", "packed", "shared_prefix"])
    parser.add_argument("--trl-rows", type=int, nargs="+", default=[1, 2], help="TRL's per_device_train_batch_size")
    parser.add_argument("--checkpointing", type=int, nargs="+", choices=[0, 1], default=[0, 1])
    parser.add_argument("--scaling", choices=list(SCALING))
    parser.add_argument("--up-to", type=int, help="the largest size of --scaling")
    parser.add_argument("--sides", nargs="+", choices=["ours", "trl"], default=["trl", "ours"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--timeout", type=int, default=3600, help="seconds for one update")
    parser.add_argument("--out", type=Path, help="writes OUT.json and OUT.md")
    arguments = parser.parse_args()
    workload = Workload(**{spec.name: getattr(arguments, spec.name) for spec in fields(Workload)})
    if arguments.scaling:
        sizes = [size for size in SCALING[arguments.scaling] if size <= (arguments.up_to or size)]
        points = [compare(replace(workload, **{FIELD[arguments.scaling]: size}), arguments) for size in sizes]
    else:
        points = [compare(workload, arguments)]
    emit({"machine": machine(arguments.threads), "points": points}, "\n\n".join(map(table, points)), arguments.out)


def compare(workload: Workload, arguments: argparse.Namespace) -> dict[str, Any]:
    """Every setting of both sides on one workload."""
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        prepare(workload, Path(folder))
        settings: list[dict[str, Any]] = []
        for checkpointing in arguments.checkpointing:
            if "trl" in arguments.sides:
                settings += [{"side": "trl", "rows": rows, "checkpointing": checkpointing} for rows in arguments.trl_rows]
            if "ours" in arguments.sides:
                settings += [
                    {"side": "ours", "layout": layout, "cap": cap, "checkpointing": checkpointing}
                    for layout in arguments.layouts
                    for cap in arguments.micro_batch_tokens
                ]
        for number, setting in enumerate(settings):
            runs.append(run(setting, Path(folder), f"gradient-{number}.pt", arguments))
        oracle = next((each for each in runs if each["side"] == "trl" and "cpu_s" in each), None)
        for each in runs:
            if oracle and "gradient" in each:
                each["loss_difference"] = abs(each["loss"] - oracle["loss"])
                each["gradient_difference"] = distance(Path(folder), each["gradient"], oracle["gradient"])
    return {"workload": asdict(workload), "runs": runs, "ratios": ratios(runs)}


def run(setting: dict[str, Any], folder: Path, gradient: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One update in its own process; the result records a failure or a timeout."""
    command = [sys.executable, str(SIDES), str(folder), gradient, json.dumps(setting)]
    threads = {"OMP_NUM_THREADS": str(arguments.threads), "MKL_NUM_THREADS": str(arguments.threads)}
    quiet = {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    try:
        done = subprocess.run(
            command, env=os.environ | threads | quiet, capture_output=True, text=True, timeout=arguments.timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return setting | {"failed": f"more than {arguments.timeout} s"}
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return setting | {"failed": f"exit code {done.returncode}"}
    result = setting | json.loads(done.stdout.strip().splitlines()[-1])
    print(json.dumps(result), file=sys.stderr, flush=True)
    return result


def distance(folder: Path, one: str, other: str) -> float:
    """The largest difference between two gradients, relative to the largest entry."""
    ours, theirs = (torch.load(folder / name, weights_only=True) for name in (one, other))
    if ours.keys() != theirs.keys():
        raise ValueError("the two sides trained different parameters")
    largest = max(float(gradient.abs().max()) for gradient in theirs.values())
    return max(float((ours[name] - theirs[name]).abs().max()) for name in theirs) / largest


def ratios(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The ratios of each of our settings to TRL's best, for each measure separately."""
    theirs = [each for each in runs if each["side"] == "trl" and "cpu_s" in each]
    if not theirs:
        return {}
    best = {key: min(each[key] for each in theirs) for key in ("cpu_s", "wall_s", "peak_mib", "added_mib")}
    ours = [each for each in runs if each["side"] == "ours" and "cpu_s" in each]
    return {name(each): {key: round(each[key] / best[key], 3) for key in best} for each in ours}


def name(each: dict[str, Any]) -> str:
    how = f"{each['rows']} rows" if each["side"] == "trl" else f"{each['layout']}, {each['cap']} tokens"
    return f"{'TRL' if each['side'] == 'trl' else 'Tracewheel'}, {how}" + (", checkpointing" if each["checkpointing"] else "")


def table(point: dict[str, Any]) -> str:
    lines = [
        ", ".join(f"{key} {value}" for key, value in point["workload"].items()),
        "",
        "| micro-batches of | CPU s | wall s | peak MiB | of which the update | loss difference | gradient difference |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for each in point["runs"]:
        if "failed" in each:
            lines.append(f"| {name(each)} | {each['failed']} | | | | | |")
            continue
        differences = [f"{each[key]:.1e}" if key in each else "" for key in ("loss_difference", "gradient_difference")]
        figures = [f"{each['cpu_s']:.1f}", f"{each['wall_s']:.1f}", f"{each['peak_mib']:.0f}", f"{each['added_mib']:.0f}"]
        lines.append(f"| {name(each)} | {' | '.join(figures + differences)} |")
    return "\n".join(lines)


def machine(threads: int) -> dict[str, Any]:
    model = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    return {
        "date": date.today().isoformat(),
        "cpu": model or platform.processor(),
        "threads": threads,
        "torch": torch.__version__,
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def emit(result: dict[str, Any], text: str, out: Path | None) -> None:
    written = json.dumps(result, indent=1)
    print(written)
    print(text)
    if out is not None:
        out.with_suffix(".json").write_text(written + "\n")
        out.with_suffix(".md").write_text(text + "\n")


if __name__ == "__main__":
    main()
