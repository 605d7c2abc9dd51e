"""Seconds of an update whose learner is started anew, and of one whose learner stayed loaded, side by side in one run.

    python benchmarks/overhead_updates.py SCRATCH BLOCKS

The child of benchmarks/overhead.py. Trajectories are sampled once by the base. Then both ways take turns in
blocks of updates, each from the previous one. Prints JSON: the seconds of each, and whether both wrote the same files.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from tracewheel.config import RetrainConfig, RolloutSections, UpdateSections, load_config
from tracewheel.core.files import read_records
from tracewheel.core.fingerprint import digest_file
from tracewheel.core.types import Score, Trajectory
from tracewheel.environments.workspace.tasks import FAMILIES, make_task
from tracewheel.learner.backends.launch import release_processes
from tracewheel.learner.kept_learner import release_learner
from tracewheel.learner.update import update
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.policy.adapters import peft_config, policy_of, write_adapter
from tracewheel.policy.loading import load_base
from tracewheel.rollout.rollout import TRAJECTORIES_FILE, RolloutPlan, rollout
from tracewheel.scoring.score import write_scores

PROFILE = "configs/tiny.yaml"
TASKS = 4
UPDATES = 4  # in turn, in a block of each way
BACKENDS: dict[str, dict[str, Any]] = {
    "one process": {"kind": "local"},
    "two processes, ZeRO-2": {"kind": "deepspeed", "stage": 2, "processes": 2},
    "two processes, ZeRO-3": {"kind": "deepspeed", "stage": 3, "processes": 2},
}


def main() -> None:
    scratch, blocks = Path(sys.argv[1]), int(sys.argv[2])
    config = load_config(PROFILE, ["threads=1"])
    inputs = made_inputs(config, scratch)
    print(json.dumps({name: measured(config, backend, inputs, scratch, blocks) for name, backend in BACKENDS.items()}))


def measured(
    config: RetrainConfig, backend: dict[str, Any], inputs: tuple[list[Path], list[Path], Path], scratch: Path, blocks: int
) -> dict[str, Any]:
    """One backend: the seconds of all updates but the first of each block, which loads what the others of the kept way use."""
    trajectories, scores, start = inputs
    learner = config.learner.model_dump(mode="json") | {"backend": backend}
    seconds: dict[str, list[float]] = {"new": [], "kept": []}
    written: dict[str, list[dict[str, str]]] = {"new": [], "kept": []}
    for block in range(blocks):
        for way in seconds:
            values = config.model_dump(mode="json") | {"learner": learner, "placement": {"keep_learner": way == "kept"}}
            sections = UpdateSections.of(RetrainConfig.model_validate(values))
            state = start
            for iteration in range(1, UPDATES + 1):
                out = scratch / "-".join(map(str, [*backend.values(), way, block, iteration]))
                began = time.perf_counter()
                update(sections, UpdateFiles(trajectories, scores, state, start / "adapter", out), iteration=iteration)
                if iteration > 1:
                    seconds[way].append(round(time.perf_counter() - began, 3))
                written[way].append(digests(out))
                state = out
            release_learner()
            release_processes()
    new, kept = (statistics.median(seconds[way]) for way in ("new", "kept"))
    return {"seconds": seconds, "kept / new": round(kept / new, 4), "same bytes": written["new"] == written["kept"]}


def digests(folder: Path) -> dict[str, str]:
    """Digests of a folder's files by name."""
    return {str(path.relative_to(folder)): digest_file(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def made_inputs(config: RetrainConfig, scratch: Path) -> tuple[list[Path], list[Path], Path]:
    """Trajectories sampled by a fresh adapter, scores drawn with a seed, and the state with the adapter."""
    import torch
    from peft import get_peft_model

    torch.manual_seed(0)
    start = scratch / "start"
    model = get_peft_model(load_base(config.policy, config.policy.base), peft_config(config.warm_start.lora))
    write_adapter(model, start / "adapter", "default", config.policy.base, version=0)
    rng = random.Random(0)
    tasks = [make_task(family, 1, rng) for family in FAMILIES][:TASKS]
    plan = RolloutPlan(tasks, samples=config.rollout.group_size, seed=0)
    rollout(RolloutSections.of(config), policy_of(start, config.policy.base), plan, scratch / "rollout")
    trajectories = scratch / "rollout" / TRAJECTORIES_FILE
    scores = [
        Score(one.id, one.task_id, one.group, "scored", float(rng.random() < 0.5))
        for one in read_records(trajectories, Trajectory)
    ]
    write_scores(scratch / "scores.parquet", scores)
    return [trajectories], [scratch / "scores.parquet"], start


if __name__ == "__main__":
    main()
