"""Slow tools: how `rollout.mode` sync, overlap and async use the time that tools take.

    python benchmarks/overlap.py                                # 50 ms to 2 s a call
    python benchmarks/overlap.py --delays 1 --iterations 12     # success after equally many updates

Each mode is a real `tracewheel retrain` from a copy of the same store, which holds all stages before the loop.
Tools wait only in training episodes. Measured is the loop, from the beginning of the first training episode to the
end of the last update. Episodes are those that were trained on; CPU seconds are those of all processes of the run in that
time. In all modes `--tool-threads` episodes can wait at once. Prints JSON and a table; `--json FILE` writes them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from measuring import emit, environment, machine, table

from tracewheel.config import load_config

KIND = "overlap_environment:SlowWorkspace"
LOGS = Path("data/traces/workspace.jsonl")
MODES = ("sync", "overlap", "async")
LOOP = ("rollout", "collect", "score", "update")
POLL = 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="configs/tiny.yaml")
    parser.add_argument("--delays", type=float, nargs="+", default=[0.05, 0.2, 1.0, 2.0], help="seconds a call")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--tool-threads", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="a.b=c", help="for every run")
    parser.add_argument("--work", type=Path, default=Path("runs/benchmark-overlap"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    work: Path = arguments.work.resolve()
    start = work / "start"
    if not (start / "done").exists():
        shutil.rmtree(start, ignore_errors=True)
        _retrain(arguments, start, ["training.iterations=1", "training.validate_every=1"], {})
        (start / "tasks.json").write_text(json.dumps(_training_tasks(start)))
        (start / "done").touch()
    runs = [_run(mode, delay, start, work, arguments) for delay in arguments.delays for mode in arguments.modes]
    result = {
        "machine": machine(arguments.threads),
        "tool_threads": arguments.tool_threads,
        "iterations": arguments.iterations,
        "overrides": arguments.overrides,
        "runs": runs,
        "ratios": ratios(runs),
    }
    emit(result, tables(result), arguments.json)


def _run(mode: str, delay: float, start: Path, work: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """One mode with one delay: figures of the loop, and the success of the trained policy."""
    folder = work / f"{mode}-{delay:g}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copytree(start / "store", folder / "store")
    for stage in LOOP:  # this run must not reuse the iteration that made the start
        for made in [*(folder / "store").glob(f"{stage}-*"), *(folder / "store" / ".facts").glob(f"{stage}-*.json")]:
            shutil.rmtree(made) if made.is_dir() else made.unlink()
    log = folder / "begun"
    variables = {"OVERLAP_DELAY": str(delay), "OVERLAP_TASKS": str(start / "tasks.json"), "OVERLAP_LOG": str(log)}
    settings = [f"rollout.mode={mode}", f"training.iterations={arguments.iterations}"]
    settings += [f"training.validate_every={arguments.iterations}"]
    summary, samples = _retrain(arguments, folder, settings, variables)
    facts = [json.loads(path.read_text()) for path in (folder / "store" / ".facts").glob("update-*.json")]
    begun, ended = float(log.read_text()), max(each["finished"] for each in facts)
    config = load_config(arguments.profile, arguments.overrides)
    episodes = len(facts) * min(config.training.tasks_per_iteration, config.curation.train_tasks) * config.rollout.group_size
    cpu = _at(samples, ended) - _at(samples, begun)
    run = {
        "mode": mode,
        "delay_s": delay,
        "updates": len(facts),
        "episodes": episodes,
        "loop_s": round(ended - begun, 2),
        "episodes_per_s": round(episodes / (ended - begun), 3),
        "cpu_s": round(cpu, 2),
        "cores_busy": round(cpu / (ended - begun), 3),
        "greedy": summary["success"]["rl"],
        "greedy_interval": summary["intervals"]["success"]["rl"],
        "sampled": summary["sampled"]["rl"],
        "rollouts": summary.get("rollouts"),
    }
    print(json.dumps(run), file=sys.stderr, flush=True)
    return run


def _retrain(
    arguments: argparse.Namespace, folder: Path, settings: list[str], variables: dict[str, str]
) -> tuple[dict[str, Any], list[tuple[float, float]]]:
    """One run through the command line; its summary, and the CPU seconds of all its processes over time."""
    logs = folder.parent / "traces.jsonl"
    logs.parent.mkdir(parents=True, exist_ok=True)
    logs.write_bytes(LOGS.read_bytes().replace(b'"kind":"workspace"', f'"kind":"{KIND}"'.encode()))
    common = [
        f"environment.kind={KIND}",
        f"ingest.paths=[{logs}]",
        f"rollout.tool_threads={arguments.tool_threads}",
        f"threads={arguments.threads}",
        f"seed={arguments.seed}",
    ]
    command = [sys.executable, "-m", "flows.cli", "retrain", arguments.profile, "--run-dir", str(folder), "--json"]
    command += [word for setting in [*common, *settings, *arguments.overrides] for word in ("--set", setting)]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "out").open("w") as out, (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            command, env=environment(arguments.threads) | variables, stdout=out, stderr=errors, start_new_session=True
        )
        samples: list[tuple[float, float]] = []
        watcher = threading.Thread(target=_watch, args=(process, samples))
        watcher.start()
        code = process.wait()
        watcher.join()
    if code not in (0, 3):  # a refused gate is a result too
        raise SystemExit(f"{' '.join(command)} ended with {code}\n{(folder / 'errors').read_text()[-3000:]}")
    return json.loads((folder / "out").read_text().strip().splitlines()[-1]), samples


def _watch(process: subprocess.Popen[bytes], samples: list[tuple[float, float]]) -> None:
    """CPU seconds of the process's session, sampled while it runs; ended processes keep what they had."""
    known: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    while process.poll() is None:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended in between
            if int(fields[3]) == process.pid:
                known[int(stat.parent.name)] = (int(fields[11]) + int(fields[12])) / tick
        samples.append((time.time(), sum(known.values())))
        time.sleep(POLL)


def _at(samples: list[tuple[float, float]], moment: float) -> float:
    return min(samples, key=lambda sample: abs(sample[0] - moment))[1]


def _training_tasks(folder: Path) -> list[str]:
    import pandas as pd

    [curated] = (folder / "store").glob("curate-*/tasks.parquet")
    tasks = pd.read_parquet(curated)
    return sorted(tasks[tasks["split"] == "train"]["id"])


def ratios(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Episodes a second over those of sync, by delay."""
    sync = {run["delay_s"]: run["episodes_per_s"] for run in runs if run["mode"] == "sync"}
    return {
        f"{run['mode']}/sync at {run['delay_s']:g} s": round(run["episodes_per_s"] / sync[run["delay_s"]], 3)
        for run in runs
        if run["mode"] != "sync" and run["delay_s"] in sync
    }


def tables(result: dict[str, Any]) -> str:
    rows = [
        [
            f"{run['mode']}, {run['delay_s']:g} s",
            run["loop_s"],
            run["episodes_per_s"],
            run["cores_busy"],
            f"{run['greedy']:.3f} ({run['greedy_interval'][0]:.3f} to {run['greedy_interval'][1]:.3f})",
            run["sampled"],
        ]
        for run in result["runs"]
    ]
    head = ["mode, seconds a call", "loop s", "episodes/s", "cores busy", "held-out greedy (95%)", "sampled"]
    return "\n\n".join([table(head, rows), ", ".join(f"{name} {ratio}" for name, ratio in result["ratios"].items())])


if __name__ == "__main__":
    main()
