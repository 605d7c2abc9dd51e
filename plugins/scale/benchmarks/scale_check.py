"""The simulation compared with real runs on this machine, in sync and async, with a slow tool.

    python scale_check.py --out benchmarks/results/scale_check.json

Rates come from the engine at several concurrencies without any delay, and from the seconds of the synchronous run's stages;
nothing of the asynchronous run is an input of the simulation.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import slow_workspace
import yaml
from measuring import emit, environment, machine, table
from scale_modes import WARM_UP, Plant, simulate
from scale_workload import Episode, Spread, Turn, Workload

ROOT = Path(__file__).parents[1]
BASE = ROOT / "data" / "base"
KIND = slow_workspace.SlowWorkspace.kind
GROUPS, SAMPLES, ITERATIONS, STALENESS = 8, 4, 8, 2
TOOL_THREADS = 64
CONCURRENCY = (2, 8, 32, 64)
DRAWS = 8


def write_profile(folder: Path) -> Path:
    """A short profile whose environment has the slow tool."""
    values = yaml.safe_load((ROOT / "configs" / "tiny-short.yaml").read_text())
    logs = (ROOT / "data" / "traces" / "workspace.jsonl").read_bytes()
    (folder / "traces.jsonl").write_bytes(logs.replace(b'"kind":"workspace"', f'"kind":"{KIND}"'.encode()))
    replay = str(BASE / "replay.parquet")
    values |= {
        "ingest": {"paths": [str(folder / "traces.jsonl")]},
        "environment": {"kind": KIND},
        "policy": {"base": str(BASE)},
    }
    values["curation"] = {"train_tasks": 16, "validation_tasks": 4, "held_out_tasks": 8, "harder_tasks": 4}
    values["warm_start"] |= {"replay": {"path": replay, "share": 0.1}}
    values["learner"] = {"replay_path": replay, "replay_rows": 4}
    values["rollout"] |= {"tool_threads": TOOL_THREADS, "group_size": SAMPLES, "max_staleness": STALENESS}
    values["training"] |= {"tasks_per_iteration": GROUPS, "validate_every": 1000}
    values["tracking"] |= {"uri": f"sqlite:///{folder}/mlflow.db"}
    path = folder / "profile.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def retrain(profile: Path, folder: Path, tool_s: float, sigma: float, **settings: Any) -> None:
    """Run the whole loop; stored stages are reused."""
    command = [sys.executable, "-m", "flows.cli", "retrain", str(profile), "--run-dir", str(folder), "--json"]
    command += [part for name, value in settings.items() for part in ("--set", f"{name.replace('__', '.')}={value}")]
    tool = {slow_workspace.MEAN: str(tool_s), slow_workspace.SIGMA: str(sigma)}
    done = subprocess.run(command, env=environment(1) | tool, cwd=ROOT, capture_output=True, text=True)
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr[-3000:])


def facts(folder: Path, stage: str) -> list[dict[str, Any]]:
    """(seconds, time of completion) of each entry of a stage."""
    found = [json.loads(path.read_text()) for path in (folder / "store" / ".facts").glob(f"{stage}-*.json")]
    return sorted(found, key=lambda each: each["finished"])


def measured(folder: Path) -> float:
    """Seconds of an iteration, from update to update, after the warm-up."""
    ends = [each["finished"] for each in facts(folder, "update")]
    return (ends[-1] - ends[WARM_UP - 1]) / (len(ends) - WARM_UP)


def engine_rates(folder: Path) -> dict[str, float]:
    """Least-squares seconds of a pass, a sampled token and a turn, without delay, and of an engine's start.

    They are CPU seconds, so that other work on the machine does not count.
    """
    import numpy
    import torch

    from tracewheel.config import EngineSections, load_config
    from tracewheel.curation.curated_folder import load_tasks
    from tracewheel.engines.making import make_engine
    from tracewheel.policy.adapters import policy_of
    from tracewheel.rollout.rollout import RolloutPlan, run_episodes

    torch.set_num_threads(1)
    config = load_config(folder.parent / "profile.yaml")
    tasks = load_tasks(next((folder / "store").glob("curate-*")), "train")
    policy = policy_of(max((folder / "store").glob("update-*"), key=lambda path: path.stat().st_mtime), str(BASE))
    rows, seconds, starts = [], [], []
    for count in CONCURRENCY * 2:
        begun = time.process_time()
        engine, renderer = make_engine(EngineSections.of(config), policy, greedy=False, slots=count)
        starts.append(time.process_time() - begun)
        passes = [0]
        step = engine.step

        def counted(step: Any = step, passes: list[int] = passes) -> Any:
            passes[0] += 1
            return step()

        engine.step = counted  # type: ignore[method-assign]
        some = (tasks * DRAWS)[: max(2, count // SAMPLES) * 4]
        rollout = config.rollout.model_copy(update={"tool_threads": 0})
        begun = time.process_time()
        done = []
        for at in range(0, len(some), max(1, count // SAMPLES)):
            done += run_episodes(
                engine, renderer, rollout, RolloutPlan(some[at : at + max(1, count // SAMPLES)], samples=SAMPLES, seed=at)
            )
        seconds.append(time.process_time() - begun)
        sampled = sum(sum(each.action_mask) for each in done)
        rows.append([passes[0], sampled, sum(len(each.turns) for each in done)])
    fitted, *_ = numpy.linalg.lstsq(numpy.array(rows, float), numpy.array(seconds), rcond=None)
    first_s, each_s, turn_s = (max(0.0, float(value)) for value in fitted)
    return {"first_s": first_s, "each_s": each_s, "turn_s": turn_s, "start_s": min(starts)}


def recorded(folder: Path, tool: Spread, seed: int = 0) -> list[Episode]:
    """The synchronous run's episodes, each turn with a tool call drawn from the distribution."""
    import random

    from tracewheel.core.files import read_records
    from tracewheel.core.types import Trajectory

    rng = random.Random(seed)
    episodes = []
    for path in sorted((folder / "store").glob("rollout-*/trajectories.parquet")):
        for each in read_records(path, Trajectory):
            ends = [0, *(turn["end"] for turn in each.turns)]
            episodes += [
                [
                    Turn(turn["start"] - before, turn["end"] - turn["start"], tool.draw(rng) * turn["calls"], 0.0)
                    for before, turn in zip(ends, each.turns, strict=False)
                ]
                for _ in range(DRAWS)
            ]
    return episodes


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool-s", type=float, default=1.0)
    parser.add_argument("--sigma", type=float, default=0.8)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    tool = Spread(options.tool_s, options.sigma)
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        profile = write_profile(root)
        retrain(profile, root / "start", 0.0, 0.0, training__iterations=1)
        rates = engine_rates(root / "start")
        folders = {}
        for mode in ("sync", "async"):
            folders[mode] = shutil.copytree(root / "start", root / mode)
            for path in [*(folders[mode] / "store").glob("rollout-*"), *(folders[mode] / "store").glob("update-*")]:
                shutil.rmtree(path)
                (folders[mode] / "store" / ".facts" / f"{path.name}.json").unlink()
            settings = {"training__iterations": ITERATIONS, "rollout__mode": mode}
            retrain(profile, folders[mode], options.tool_s, options.sigma, **settings)
        seconds = {
            stage: mean([each["seconds"] for each in facts(folders["sync"], stage)][1:]) for stage in ("rollout", "update")
        }
        workload = Workload(tasks=GROUPS, group=SAMPLES, recorded=recorded(folders["sync"], tool))
        found = {mode: measured(folder) for mode, folder in folders.items()}
    between = found["sync"] - seconds["rollout"] - seconds["update"]
    plant = Plant(
        replicas=1,
        sessions=(1 + STALENESS) * GROUPS * SAMPLES,
        batch=256,
        first_s=rates["first_s"],
        each_s=rates["each_s"],
        prefill_s=0.0,
        turn_s=rates["turn_s"],
        cores=None,
        core_turn_s=0.0,
        tool_share=1.0,
        update_s=lambda tokens: seconds["update"],
        driver_s=lambda tokens: between,
        publish_s=0.0,
        swap_s=0.0,
        tool_slots=TOOL_THREADS,
        start_s=rates["start_s"],
    )
    rows, points = [], {}
    for mode, seconds_measured in found.items():
        own = plant if mode == "sync" else replace(plant, start_s=0.0)
        tally = simulate(mode, own, workload, iterations=60, staleness=STALENESS)
        predicted = tally.seconds / tally.iterations
        points[mode] = {"measured_s": seconds_measured, "predicted_s": predicted, "ratio": predicted / seconds_measured}
        rows.append([mode, seconds_measured, predicted, predicted / seconds_measured])
    result = {
        "machine": machine(1),
        "tool": {"mean_s": options.tool_s, "sigma": options.sigma, "threads": TOOL_THREADS},
        "rates": rates | {"update_s": seconds["update"], "between_s": between},
        "iteration": points,
        "async_over_sync": {key: points["sync"][key] / points["async"][key] for key in ("measured_s", "predicted_s")},
    }
    emit(result, table(["mode", "s an iteration, measured", "predicted", "predicted / measured"], rows), options.out)


if __name__ == "__main__":
    main()
