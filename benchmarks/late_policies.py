"""Whether the average of the last adapters wavers less than the last adapter.

    python benchmarks/late_policies.py --seeds 0 1 2 3

The demo's loop on each seed; then, at each fourth of its last iterations, the greedy success on the held-out tasks and on the
harder tier of the policy itself and of averages of the last `n` policies. An average is that of the products B A, exact by
stacking the factors, brought back to the rank by singular values. Rounding, which differs between processors, makes a loop part
from itself as another draw does, so that the spread over iterations and seeds stands for it. The outcome of each task is kept
in `results/late_policies.json`; what it holds is not played again. Needs the wheel federated.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd
import torch
from measuring import table
from safetensors.numpy import load_file, save_file
from stage_loop import curated_logs, stage_loop, warm_started

from tracewheel.config import EvaluateSections, RetrainConfig, load_config
from tracewheel.curation.curated_folder import HARDER, HELD_OUT
from tracewheel.evaluation.evaluate import RESULTS_FILE, evaluate_split
from tracewheel.policy.adapter_check import WEIGHTS
from tracewheel.policy.adapters import PolicyRef
from tracewheel_federated.low_rank import adapter_of, layers_of, nearest, summed

ITERATIONS = (20, 24, 28, 32, 36, 40, 44, 48)
LAST = (1, 2, 4, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--work", type=Path, default=Path("runs/benchmark-late-policies"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    known = arguments.out / "late_policies.json"
    results: dict[str, Any] = json.loads(known.read_text()) if known.exists() else {}
    for seed in arguments.seeds:
        if str(seed) not in results:
            config = load_config("configs/tiny.yaml", [f"seed={seed}", *arguments.settings])
            results[str(seed)] = played(config, arguments.work, arguments.work / f"seed-{seed}")
            arguments.out.mkdir(parents=True, exist_ok=True)
            known.write_text(json.dumps(results) + "\n")
    text = table_of(results)
    known.with_suffix(".md").write_text(text)
    print(text)


def played(config: RetrainConfig, shared: Path, work: Path) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Greedy outcomes by length of the average, iteration and split."""
    torch.set_num_threads(config.threads)
    curated = curated_logs(config, shared / "curated")
    start = warm_started(config, curated, work / "warm")
    stage_loop(config, curated, start, work)
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for last in LAST:
        for iteration in ITERATIONS:
            adapters = [work / f"{number:03d}" / "adapter" for number in range(iteration - last + 1, iteration + 1)]
            adapter = averaged(adapters, work / f"averages/{iteration:03d}-{last}")
            policy = PolicyRef(config.policy.base, str(adapter), 0)
            of = found.setdefault(str(last), {}).setdefault(str(iteration), {})
            for split in (HELD_OUT, HARDER):
                out = work / f"evaluated/{iteration:03d}-{last}-{split}"
                shutil.rmtree(out, ignore_errors=True)
                out.mkdir(parents=True)
                evaluate_split(EvaluateSections.of(config), policy, curated, split, out, samples=0)
                of[split] = pd.read_parquet(out / RESULTS_FILE)["greedy"].astype(float).tolist()
            print(f"{work.name}, {iteration}, average of {last}: {fmean(of[HELD_OUT]):.3f}", file=sys.stderr, flush=True)
    return found


def averaged(adapters: list[Path], out: Path) -> Path:
    """The adapter whose products are nearest to the mean of the adapters' products."""
    if len(adapters) == 1:
        return adapters[0]
    shutil.copytree(adapters[-1], out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("probe*"))  # of other weights
    layers = [layers_of(load_file(folder / WEIGHTS)) for folder in adapters]
    means = {name: summed((1.0 / len(layers), one[name]) for one in layers) for name in layers[0]}
    ranks = {name: len(layer.a) for name, layer in layers[0].items()}
    save_file(adapter_of({name: nearest(mean, ranks[name]) for name, mean in means.items()}), out / WEIGHTS, {"format": "pt"})
    return out


def table_of(results: dict[str, Any]) -> str:
    """Markdown: mean and spread of each average, and the curve of each seed."""
    rows, curves = [], []
    for last in map(str, LAST):
        row = [last]
        for split in (HELD_OUT, HARDER):
            rates = {seed: [fmean(of[last][str(number)][split]) for number in ITERATIONS] for seed, of in results.items()}
            every = [rate for curve in rates.values() for rate in curve]
            ends = [curve[-1] for curve in rates.values()]
            within = fmean(stdev(curve) for curve in rates.values())
            row += [f"{100 * fmean(every):.1f}", f"{100 * within:.1f}", f"{100 * stdev(every):.1f}", f"{100 * fmean(ends):.1f}"]
            if split == HELD_OUT:
                curves += [[last, seed, *(f"{100 * rate:.1f}" for rate in curve)] for seed, curve in rates.items()]
        rows.append(row)
    about = str(__doc__).split("\n\n", 2)[2].strip()
    columns = ("mean", "spread over iterations", "spread over all", f"at {ITERATIONS[-1]}")
    head = ["policies", *(f"{name}, {column}" for name in ("held out", "harder") for column in columns)]
    seeds = f"{len(results)} seeds; success in percent, spreads (standard deviations) in points."
    return (
        f"# Late policies\n\nWritten by `benchmarks/late_policies.py`. {about}\n\n{seeds}\n\n{table(head, rows)}"
        f"\n\nHeld out, by iteration:\n\n{table(['policies', 'seed', *map(str, ITERATIONS)], curves)}\n"
    )


if __name__ == "__main__":
    main()
