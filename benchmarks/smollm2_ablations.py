"""What counts in the profile of a pretrained language model: one thing changed at a time, in half as many iterations.

    python benchmarks/smollm2_ablations.py --seeds 0 --ablations "as it is" "no action mask"    # 20 minutes each on two cores
    python benchmarks/smollm2_ablations.py --seeds 0 --device cuda --jobs 6                     # several at once on a GPU

The stages run in order, without Prefect, validation and gate; the policy of the last iteration is evaluated. The logs are
curated, and the warm start that all have in common is trained, once a seed (`--work` keeps both). An ablation that was stopped
goes on after its last iteration; one that has a result is made again. Each result goes into `benchmarks/results/smollm2.json` as soon as it
is there; `smollm2.py show` writes the tables.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from bfloat16_products import multiply_in_float32
from learning import without_mask
from measuring import environment
from smollm2 import JSON, PROFILE, evaluated, store
from smollm2_report import ABLATIONS, BFLOAT16_SAMPLER, NO_MASK, OTHER_LUCK, REPLAY, WARM_START
from stage_loop import curated_logs, stage_loop, warm_started
from whole_run import UPDATE

from tracewheel.config import RetrainConfig, load_config
from tracewheel.config.precision import choose_dtype
from tracewheel.learner.warm_start.demonstrations import demonstration_examples
from tracewheel.learner.warm_start.selection import episodes_to_imitate
from tracewheel.policy.adapters import PolicyRef
from tracewheel.policy.loading import policy_renderer

SECONDS, RESULT = ("rollout_s", "update_s"), "result.json"
# A GPU takes more at once.
ON_A_GPU = (
    "policy.device=cuda",
    "rollout.engine.slots=256",
    "warm_start.micro_batch_tokens=16384",
    "learner.micro_batch_tokens=16384",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--ablations", nargs="+", choices=[WARM_START, *ABLATIONS], default=list(ABLATIONS))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1, help="how many run at once")
    parser.add_argument(
        "--set", dest="changes", nargs="+", default=[], metavar="KEY=VALUE", help="changes to the profile of all"
    )
    parser.add_argument("--work", type=Path, default=Path("runs/benchmark-smollm2/ablations"))
    parser.add_argument("--json", type=Path, default=JSON)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        if arguments.here:
            print(json.dumps(ablated(arguments.ablations[0], seed, arguments)))
            continue
        result = arguments.work / str(seed) / WARM_START / RESULT
        begin = [] if result.exists() else [WARM_START]
        for names in (begin, [name for name in arguments.ablations if name not in begin]):
            for name, found in in_children(names, seed, arguments):
                store("ablations", seed, {name: found}, arguments.json)
            if not result.exists():
                sys.exit("no warm start to continue from")


def in_children(names: Sequence[str], seed: int, arguments: argparse.Namespace) -> Any:
    """What each gave, as soon as it is there; one that fails is said so and left out."""
    with ThreadPoolExecutor(arguments.jobs) as pool:
        jobs = {pool.submit(in_child, name, seed, arguments): name for name in names}
        for job in as_completed(jobs):
            if found := job.result():
                yield jobs[job], found


def in_child(name: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any] | None:
    """An ablation in a process of its own, which keeps no learner from the one before."""
    folder = arguments.work / str(seed) / folder_name(name)
    if (folder / RESULT).exists():
        shutil.rmtree(folder)
    given = ["--work", arguments.work, "--device", arguments.device, "--threads", arguments.threads]
    given += ["--set", *arguments.changes] if arguments.changes else []
    command = [sys.executable, __file__, "--here", "--seeds", seed, "--ablations", name, *given]
    done = subprocess.run([*map(str, command)], env=environment(arguments.threads), capture_output=True, text=True)
    if done.returncode:
        print(f"{name}, seed {seed}, ended with {done.returncode}:\n{done.stderr[-3000:]}", file=sys.stderr, flush=True)
        return None
    found: dict[str, Any] = {**json.loads(done.stdout.splitlines()[-1]), "jobs": arguments.jobs}
    (folder / RESULT).write_text(json.dumps(found))
    seconds = {key: round(sum(update[key] for update in found["updates"])) for key in SECONDS}
    print(f"{name}, seed {seed}: {found['wall_s']:.0f} s, {seconds}", file=sys.stderr, flush=True)
    return found


def folder_name(name: str) -> str:
    return name.replace(" ", "-").replace(",", "")


def ablated(name: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """The loop with one thing changed, or the warm start alone: outcomes on both splits, and figures of each update."""
    begun, work = time.perf_counter(), arguments.work / str(seed)
    folder, changes = work / folder_name(name), ABLATIONS.get(name, [])
    # Both parts are in float32, whatever the hardware multiplies, unless an ablation says otherwise.
    settings = [f"seed={seed}", f"threads={arguments.threads}", "policy.dtype=float32"]
    settings += ON_A_GPU if arguments.device == "cuda" else ()
    iterations = load_config(PROFILE).training.iterations // 2
    settings += [f"training.iterations={iterations}", *changes, *arguments.changes]
    config = load_config(PROFILE, settings)
    torch.set_num_threads(config.threads)
    if "bfloat16" in name and arguments.device == "cpu" and choose_dtype(config.policy.base, "cpu")[0] == "float32":
        multiply_in_float32()
    curated = curated_logs(config, work / "curated")
    # An ablation of the adapter's shape has a warm start of its own.
    own = any(change.startswith("warm_start.") for change in changes)
    start = warm_started(config, curated, (folder if own else work / WARM_START) / "start")
    adapter, updates = start / "adapter", []
    drawn = OTHER_LUCK.get(name)
    if name == REPLAY:
        config = load_config(PROFILE, [*settings, f"learner.replay_path={demonstrations(config, curated, folder)}"])
    if name in NO_MASK:
        adapter, updates = without_mask(config, curated, start, folder, drawn)
    elif name != WARM_START:
        sampling = load_config(PROFILE, [*settings, "policy.dtype=bfloat16"]) if name == BFLOAT16_SAMPLER else None
        adapter, updates = stage_loop(config, curated, start, folder, sampling=sampling, drawn=drawn)
    policy = PolicyRef(config.policy.base, str(adapter), len(updates))
    return {
        **evaluated(config, curated, policy, folder),
        "settings": settings,
        "updates": [{key: update.get(key) for key in (*UPDATE, *SECONDS)} for update in updates],
        "wall_s": time.perf_counter() - begun,
        "device": torch.cuda.get_device_name() if config.policy.device == "cuda" else "cpu",
    }


def demonstrations(config: RetrainConfig, curated: Path, folder: Path) -> Path:
    """The warm start's demonstrations as replay text."""
    episodes = episodes_to_imitate(config.warm_start, curated, "verified")
    examples = demonstration_examples(episodes, policy_renderer(config.policy), config.warm_start.classes)
    path = folder / "demonstrations.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(examples).to_parquet(path)
    return path.resolve()


if __name__ == "__main__":
    main()
