"""The cost of orchestration: where the wall time of a real `tracewheel retrain` goes, and what DVC would add.

    python benchmarks/overhead.py                                   # the short profile
    python benchmarks/overhead.py --profile configs/tiny.yaml       # the demo
    python benchmarks/overhead.py --updates-only                    # only new learners against kept ones

The run's time is booked to accounts (`overhead_run.py`): the stages' own functions, Prefect, MLflow, the
store, imports. Model work is the time of the stages in `MODEL_WORK`. DVC drives the same stages without Prefect, so
its cost is measured apart: a pipeline of as many stages as `dvc.yaml` has, whose commands copy a small file.
`overhead_updates.py` compares an update with a new learner and with one that stayed loaded.
Prints JSON and a table; `--json FILE` writes them.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from measuring import emit, environment, machine, table

RUN = Path(__file__).parent / "overhead_run.py"
UPDATES = Path(__file__).parent / "overhead_updates.py"
BLOCKS = 2
MODEL_WORK = ("warm_start", "rollout", "update", "evaluate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="configs/tiny-short.yaml")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="a.b=c")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--updates-only", action="store_true", help="only compare new learners with kept ones")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    updates = {"machine": machine(arguments.threads), "updates": kept_updates(arguments.threads)}
    if arguments.updates_only:
        emit(updates, updates_table(updates["updates"]), arguments.json)
        return
    result = {
        **updates,
        "profile": arguments.profile,
        "overrides": arguments.overrides,
        **retrain(arguments.profile, arguments.overrides, arguments.threads),
        "dvc": dvc(),
    }
    emit(result, tables(result), arguments.json)


def retrain(profile: str, overrides: list[str], threads: int) -> dict[str, Any]:
    """One run in its own folder; its wall seconds by account."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "ledger.json"
        settings = json.dumps([f"threads={threads}", *overrides])
        started = time.time()
        command = [sys.executable, str(RUN), str(started), profile, f"{folder}/run", settings, str(out)]
        done = subprocess.run(command, env=environment(threads), capture_output=True, text=True, check=False)
        total = time.time() - started
        if not out.exists():
            raise SystemExit(f"the run ended with {done.returncode}\n{done.stderr[-3000:]}")
        seconds = json.loads(out.read_text())
    seconds["end"] = round(total - sum(seconds.values()), 3)
    model = sum(seconds.get(f"stage {stage}", 0.0) for stage in MODEL_WORK)
    stages = sum(value for account, value in seconds.items() if account.startswith("stage "))
    imports = sum(value for account, value in seconds.items() if account.startswith("import "))
    return {
        "wall_s": round(total, 2),
        "seconds": dict(sorted(seconds.items(), key=lambda pair: -pair[1])),
        "shares": {
            "outside model work": round(1 - model / total, 4),
            "outside model work, imports apart": round((total - model - imports) / (total - imports), 4),
            "outside the stages, imports apart": round((total - stages - imports) / (total - imports), 4),
            "prefect": round(seconds.get("prefect", 0.0) / total, 4),
            "mlflow": round(seconds.get("mlflow", 0.0) / total, 4),
            "store": round(seconds.get("store", 0.0) / total, 4),
            "imports": round(imports / total, 4),
        },
    }


def kept_updates(threads: int) -> dict[str, Any]:
    """Seconds of an update with a new learner and with one that stayed loaded, on each backend."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(UPDATES), folder, str(BLOCKS)]
        done = subprocess.run(command, env=environment(threads), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the updates ended with {done.returncode}\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def updates_table(updates: dict[str, Any]) -> str:
    head = ["an update after the first, medians", "new learner s", "kept learner s", "kept / new", "same bytes"]
    rows = [
        [name, *(statistics.median(found["seconds"][way]) for way in ("new", "kept")), found["kept / new"], found["same bytes"]]
        for name, found in updates.items()
    ]
    return table(head, rows)


def dvc() -> dict[str, Any]:
    """Wall seconds of DVC over as many stages as the project's pipeline has: the first run, and a run with nothing to do."""
    count = sum(_size(stage) for stage in yaml.safe_load(Path("dvc.yaml").read_text())["stages"].values())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "0.txt").write_text("0\n")
        stages = {
            f"stage{number}": {
                "cmd": f"cp {number}.txt {number + 1}.txt && echo {number} >> {number + 1}.txt",
                "deps": [f"{number}.txt"],
                "outs": [f"{number + 1}.txt"],
            }
            for number in range(count)
        }
        (folder / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}))
        for options in (["init", "--no-scm", "--quiet"], ["config", "core.analytics", "false"]):
            _dvc(options, folder)
        return {
            "stages": count,
            "version_s": _dvc(["version"], folder),
            "first_s": _dvc(["repro", "--quiet"], folder),
            "nothing_to_do_s": _dvc(["repro", "--quiet"], folder),
            "status_s": _dvc(["status", "--quiet"], folder),
        }


def _size(stage: dict[str, Any]) -> int:
    """How many stages an entry of dvc.yaml makes."""
    axes = [stage["foreach"]] if "foreach" in stage else list(stage.get("matrix", {}).values())
    return math.prod(map(len, axes))


def _dvc(options: list[str], folder: Path) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "dvc", *options], cwd=folder, env=environment(1), check=True, capture_output=True)
    return round(time.perf_counter() - started, 2)


def tables(result: dict[str, Any]) -> str:
    seconds = table(
        ["account", "wall s", "share"],
        [[account, value, value / result["wall_s"]] for account, value in result["seconds"].items()],
    )
    shares = table(["share of the wall time", ""], [[name, value] for name, value in result["shares"].items()])
    figures = result["dvc"]
    each = (figures["first_s"] - figures["version_s"]) / figures["stages"]
    dvc_line = (
        f"DVC, {figures['stages']} stages: {figures['version_s']} s to start, {each:.3f} s a stage made, "
        f"{figures['nothing_to_do_s']} s with nothing to do"
    )
    return "\n\n".join(
        [updates_table(result["updates"]), f"{result['profile']}: {result['wall_s']} s", seconds, shares, dvc_line]
    )


if __name__ == "__main__":
    main()
