"""A busy machine: one evaluation, and a whole run, alone and beside two processes that keep two processors busy.

    python benchmarks/busy_machine.py                                  # the evaluation, then the short profile
    python benchmarks/busy_machine.py --profile configs/tiny.yaml      # the demo: three runs, of minutes each
    python benchmarks/busy_machine.py --only evaluation

The evaluation has two torch threads and is measured with three ways of waiting, in turn: `spinning`, as GNU's OpenMP
runtime does by default, `asleep`, as it does with `OMP_WAIT_POLICY=PASSIVE` alone, and `brief`, as Tracewheel sets it.
The run is measured as the program starts it, with `--threads` threads. Ratios are of wall seconds within one call of this
script; other work on the machine makes the «alone» sides busy, too. A side that does not end within `--patience` seconds
is stopped, and its figure is a lower bound. Prints JSON and a table; `--json FILE` writes them.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from measuring import emit, environment, machine, table

from tracewheel.core.threads import BRIEF, USERS_OWN

BURN = "while True: pass"
BUSY = 2
# Spinning is libgomp's default, asleep what it makes of OMP_WAIT_POLICY=PASSIVE, brief what Tracewheel sets.
WAYS = {"spinning": {"GOMP_SPINCOUNT": "300000"}, "asleep": {"OMP_WAIT_POLICY": "PASSIVE"}, "brief": BRIEF}
SHORT = "configs/tiny-short.yaml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default=SHORT, help="of the whole run")
    parser.add_argument("--threads", type=int, help="of the whole run (default: 2 with the short profile, else the profile's)")
    parser.add_argument("--only", choices=("evaluation", "run"))
    parser.add_argument("--repeats", type=int, default=3, help="of each side of the evaluation; the median counts")
    parser.add_argument("--patience", type=float, default=300.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--evaluate", metavar="CURATED", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.evaluate:
        _evaluate(Path(arguments.evaluate))
        return
    result: dict[str, Any] = {"machine": machine(2), "busy_processes": BUSY}
    with tempfile.TemporaryDirectory() as folder:
        if arguments.only != "run":
            result["evaluation"] = evaluations(Path(folder), arguments.repeats, arguments.patience)
        if arguments.only != "evaluation":
            threads = arguments.threads or (2 if arguments.profile == SHORT else None)
            result["run"] = runs(Path(folder), arguments.profile, threads, arguments.patience)
    emit(result, tables(result), arguments.json)


def evaluations(folder: Path, repeats: int, patience: float) -> dict[str, Any]:
    """Median seconds of one evaluation with two threads, by the way of waiting, alone and beside the busy processes."""
    for stage, *options in (("ingest",), ("curate", "--traces", f"{folder}/traces")):
        out = folder / ("traces" if stage == "ingest" else "curated")
        _command([stage, SHORT, *options, "--out", str(out)], {}, patience)
    found: dict[str, list[float]] = {}
    for _ in range(repeats):
        for place in ("alone", "busy"):
            for way, variables in WAYS.items():
                command = [sys.executable, __file__, "--evaluate", str(folder / "curated")]
                with busy(BUSY if place == "busy" else 0):
                    found.setdefault(f"{way}, {place}", []).append(_seconds(command, variables, patience))
    seconds = {side: round(statistics.median(values), 2) for side, values in found.items()}
    return {
        "seconds": seconds,
        "busy over alone": {way: round(seconds[f"{way}, busy"] / seconds[f"{way}, alone"], 2) for way in WAYS},
        "over brief, alone": {way: round(seconds[f"{way}, alone"] / seconds["brief, alone"], 2) for way in WAYS},
        "over brief, busy": {way: round(seconds[f"{way}, busy"] / seconds["brief, busy"], 2) for way in WAYS},
    }


def runs(folder: Path, profile: str, threads: int | None, patience: float) -> dict[str, Any]:
    """Seconds of a whole run as the program starts it: alone, beside the busy processes, and alone once more."""
    settings = ["--set", f"threads={threads}"] if threads else []
    seconds = {}
    for place in ("alone", "busy", "alone again"):
        command = ["retrain", profile, "--run-dir", str(folder / place.replace(" ", "-")), *settings]
        with busy(BUSY if place == "busy" else 0):
            seconds[place] = _command(command, {}, patience if profile == SHORT else 4 * patience, accepted=(0, 3))
    alone = (seconds["alone"] + seconds["alone again"]) / 2
    return {"profile": profile, "threads": threads, "seconds": seconds, "busy over alone": round(seconds["busy"] / alone, 2)}


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep processors busy during the block."""
    burning = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            process.wait()


def _evaluate(curated: Path) -> None:
    """The measured child: load, evaluate once unmeasured on a few tasks, and print the seconds of an evaluation."""
    from tracewheel.config import EvaluateSections, load_config
    from tracewheel.curation.curated_folder import load_tasks
    from tracewheel.evaluation.evaluate import evaluate
    from tracewheel.policy.adapters import PolicyRef

    config = EvaluateSections.of(load_config(SHORT, ["threads=2"]))
    tasks = load_tasks(curated, "held_out")
    policy = PolicyRef(config.policy.base, None, 0)
    with tempfile.TemporaryDirectory() as folder:
        evaluate(config, policy, tasks[:2], Path(folder) / "warm", samples=1, seed=0)
        started = time.perf_counter()
        evaluate(config, policy, tasks, Path(folder) / "measured", samples=4, seed=0)
        print(time.perf_counter() - started)


def _seconds(command: list[str], variables: dict[str, str], patience: float) -> float:
    try:
        done = subprocess.run(command, env=_variables(variables), capture_output=True, text=True, check=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return patience
    return float(done.stdout)


def _command(arguments: list[str], variables: dict[str, str], patience: float, accepted: tuple[int, ...] = (0,)) -> float:
    """Wall seconds of a `tracewheel` command."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "flows.cli", *arguments]
    try:
        done = subprocess.run(command, env=_variables(variables), capture_output=True, text=True, check=False, timeout=patience)
    except subprocess.TimeoutExpired:
        return patience
    if done.returncode not in accepted:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}\n{done.stderr[-3000:]}")
    return round(time.perf_counter() - started, 1)


def _variables(variables: dict[str, str]) -> dict[str, str]:
    """The environment of a user who has set nothing about threads, and these."""
    kept = environment(2)
    for name in (*USERS_OWN, "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        kept.pop(name, None)
    return kept | variables


def tables(result: dict[str, Any]) -> str:
    lines = []
    if "evaluation" in result:
        found = result["evaluation"]
        rows = [
            [way, found["seconds"][f"{way}, alone"], found["seconds"][f"{way}, busy"], found["busy over alone"][way]]
            for way in WAYS
        ]
        lines.append(table(["one evaluation, 2 threads", "alone s", "busy s", "ratio"], rows))
        lines.append(f"over brief, alone: {found['over brief, alone']}; over brief, busy: {found['over brief, busy']}")
    if "run" in result:
        found = result["run"]
        row = [found["profile"], *found["seconds"].values(), found["busy over alone"]]
        lines.append(table(["a whole run", *(f"{place} s" for place in found["seconds"]), "ratio"], [row]))
    return "\n\n".join(lines)


if __name__ == "__main__":
    main()
