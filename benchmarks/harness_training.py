"""Trains the workspace agent as a program on OpenAI's client and by the built-in loop, side by side, on several seeds.

    python benchmarks/harness_training.py --seeds 0 1 2 --work runs/harness-training --json docs/harness_training.json

Both sides run `tracewheel retrain configs/tiny-harness.yaml`, one of them with `rollout.harness=null`. The table has each
side's success on the held-out tasks (greedy / sampled) before and after reinforcement learning, with its 95% interval, the
lowest fidelity of the updates on programs' episodes, and the CPU time with all children. A side whose summary lies in `--work`
already is not run again.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from measuring import emit, environment, machine, table

SIDES: dict[str, list[str]] = {"program": [], "built-in loop": ["rollout.harness=null"]}
POLICIES = ("warm_start_verified", "rl")
HEADINGS = ["seed", "side", "warm start", "after RL", "95% interval", "fidelity", "CPU minutes"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="configs/tiny-harness.yaml")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path("runs/harness-training"))
    parser.add_argument("--json", type=Path, help="write the figures here, and the table beside it")
    arguments = parser.parse_args()
    rows = [
        retrain(arguments.profile, side, seed, arguments.work, arguments.threads)
        for seed in arguments.seeds
        for side in arguments.sides
    ]
    result = {"command": " ".join(sys.argv), "machine": machine(arguments.threads), "rows": rows}
    emit(result, table(HEADINGS, [shown(row) for row in rows]), arguments.json)


def retrain(profile: str, side: str, seed: int, work: Path, threads: int) -> dict[str, Any]:
    """One run, or its stored summary."""
    folder = work / f"{side.replace(' ', '-')}-{seed}"
    summary = folder / "summary.json"
    if not summary.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        settings = [f"--set={setting}" for setting in [f"seed={seed}", *SIDES[side]]]
        command = [sys.executable, "-m", "flows.cli", "retrain", profile, *settings, "--run-dir", str(folder / "run"), "--json"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment(threads), check=False)
        if done.returncode not in (0, 3):
            sys.exit(f"{' '.join(command)} ended with {done.returncode}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        summary.write_text(json.dumps({"cpu_s": cpu, **json.loads(done.stdout)}))
    found = json.loads(summary.read_text())
    return {"seed": seed, "side": side, "cpu_s": found["cpu_s"], "fidelity": fidelity(folder / "run"), **held_out(found)}


def held_out(run: dict[str, Any]) -> dict[str, Any]:
    """Greedy and sampled success on the held-out tasks, by policy."""
    modes = {"greedy": "success", "sampled": "sampled"}
    return {
        mode: {policy: {"rate": run[name][policy], "interval": run["intervals"][name][policy]} for policy in POLICIES}
        for mode, name in modes.items()
    }


def fidelity(run_dir: Path) -> float | None:
    """The lowest fidelity of the run's updates; None where no program was trained."""
    measured = [json.loads(file.read_text()).get("fidelity") for file in sorted(run_dir.glob("store/update-*/metrics.json"))]
    return min((value for value in measured if value is not None), default=None)


def shown(row: dict[str, Any]) -> list[Any]:
    """A row of the table."""
    rates = [f"{row[mode][policy]['rate']:.3f}" for policy in POLICIES for mode in ("greedy", "sampled")]
    intervals = [" to ".join(f"{end:.3f}" for end in row[mode]["rl"]["interval"]) for mode in ("greedy", "sampled")]
    before, after = " / ".join(rates[:2]), " / ".join(rates[2:])
    return [row["seed"], row["side"], before, after, " / ".join(intervals), row["fidelity"], f"{row['cpu_s'] / 60:.1f}"]


if __name__ == "__main__":
    main()
