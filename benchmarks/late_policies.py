"""Whether late policies waver less: by which of them is chosen, by averaging them, or by how fast they still learn.

    python benchmarks/late_policies.py --seeds 0 1 2 3

The demo's loop on each seed and with each rounding: that of this processor, and that of one without AVX-512. Three arms: the
demo's constant learning rate; one that falls linearly towards 0; one tied to the divergence from the behaviour policy, which
falls by 1.5 after an update that moved twice as far as the median of updates 2 to 9, and rises by it, up to the demo's, after
one that moved less than half as far. (rsl_rl's rule, Schwarke et al. 2025, arXiv:2509.10771, has a fixed aim of 0.01, twenty
times what the demo's updates move: it would never act.) Of each loop's policies one is chosen: the last; the best on
validation, which is the demo's way; the one with the best mean over 3 or 5 neighbouring validations; and, with the constant
rate, the mean of the last 8 (of the products B A, exact by stacking the factors, brought back to the rank by singular
values). Ties go to the earliest. Figures are greedy success on the held-out tasks and on the harder tier, in percent, and
standard deviations over all loops, in points. Outcomes of each task are kept in `results/late_policies.json`, a digit each;
what it holds is not played again. Needs the wheel federated.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
import pandas as pd
import torch
from measuring import table
from methods import difference_of, method_table
from safetensors.numpy import load_file, save_file
from stage_loop import curated_logs, stage_loop, warm_started

from tracewheel.config import EvaluateSections, RetrainConfig, load_config
from tracewheel.curation.curated_folder import HARDER, HELD_OUT, VALIDATION
from tracewheel.evaluation.evaluate import RESULTS_FILE, evaluate_split
from tracewheel.policy.adapter_check import WEIGHTS
from tracewheel.policy.adapters import PolicyRef
from tracewheel.sampling.validation import VALIDATION_SAMPLES, validates
from tracewheel_federated.low_rank import adapter_of, layers_of, nearest, summed

ARMS: dict[str, list[str]] = {"constant": [], "linear": ["learner.schedule=linear"], "tied": []}
ROUNDINGS = {
    "own": {},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
}
NEIGHBOURS = {"last": 0, "best": 1, "best mean of 3": 3, "best mean of 5": 5}
LAST, AVERAGED = 8, "mean of the last 8"
LATE = (24, 28, 32, 36, 40, 44, 48)  # over which the spread within a loop is taken
FIRST, FACTOR = slice(1, 9), 1.5  # the updates whose pace is kept

Outcomes = dict[str, dict[str, str]]  # split to policy to a digit for each task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--roundings", nargs="+", choices=ROUNDINGS, default=list(ROUNDINGS))
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--work", type=Path, default=Path("runs/benchmark-late-policies"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--play", nargs=3, metavar=("ARM", "ROUNDING", "SEED"), help="one loop, in this process")
    arguments = parser.parse_args()
    known = arguments.out / "late_policies.json"
    if arguments.play:
        arm, rounding, seed = arguments.play
        config = load_config("configs/tiny.yaml", [f"seed={seed}", *ARMS[arm], *arguments.settings])
        found = played(config, arm, arguments.work / "curated", arguments.work / f"{rounding}-{seed}")
        results = json.loads(known.read_text()) if known.exists() else {}
        results.setdefault(arm, {}).setdefault(rounding, {})[seed] = found
        arguments.out.mkdir(parents=True, exist_ok=True)
        known.write_text(json.dumps(results) + "\n")
        return
    for rounding in arguments.roundings:
        for seed in map(str, arguments.seeds):
            for arm in arguments.arms:
                results = json.loads(known.read_text()) if known.exists() else {}
                if seed not in results.get(arm, {}).get(rounding, {}):
                    # Which instructions a process uses is decided when it begins.
                    command = [sys.executable, *sys.argv, "--play", arm, rounding, seed]
                    subprocess.run(command, check=True, env=os.environ | ROUNDINGS[rounding])
    text = page(json.loads(known.read_text()))
    known.with_suffix(".md").write_text(text)
    print(text)


def played(config: RetrainConfig, arm: str, curated: Path, seed: Path) -> dict[str, Any]:
    """Outcomes of one loop's policies: all that were validated on validation tasks; late and chosen ones on the others."""
    torch.set_num_threads(config.threads)
    curated_logs(config, curated)
    start, work = warm_started(config, curated, seed / "warm"), seed / arm
    _, figures = stage_loop(config, curated, start, work, rate=tied(config.learner.rate()) if arm == "tied" else None)
    outcomes: Outcomes = {}

    def evaluate(name: str, adapter: Path, split: str, samples: int = 0) -> None:
        if name in outcomes.setdefault(split, {}):
            return
        out = work / f"evaluated/{name}-{split}"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        policy = PolicyRef(config.policy.base, str(adapter), 0)
        evaluate_split(EvaluateSections.of(config), policy, curated, split, out, samples=samples)
        rows = pd.read_parquet(out / RESULTS_FILE)
        outcomes[split][name] = digits(rows["greedy"])
        if samples:
            outcomes.setdefault(f"{split}, sampled", {})[name] = digits(rows["sampled_successes"])

    def folder(iteration: int) -> Path:
        return work / f"{iteration:03d}" / "adapter"

    validated = [each for each in range(1, config.training.iterations + 1) if validates(config.training, each)]
    for iteration in validated:
        evaluate(str(iteration), folder(iteration), VALIDATION, VALIDATION_SAMPLES)
    for split in (HELD_OUT, HARDER):
        for iteration in {*LATE, *map(int, chosen(outcomes).values())}:
            evaluate(str(iteration), folder(iteration), split)
        for iteration in LATE if arm == "constant" else ():
            last = [folder(each) for each in range(iteration - LAST + 1, iteration + 1)]
            evaluate(f"{iteration} averaged", averaged(last, work / f"averages/{iteration:03d}"), split)
    rates = {name: round(100 * rate(outcomes[HELD_OUT][each]), 1) for name, each in chosen(outcomes).items()}
    print(f"{work}: {rates}", file=sys.stderr, flush=True)
    return {"outcomes": outcomes, "kl": [each.get("behaviour_kl") for each in figures]}


def tied(most: float) -> Any:
    """The learning rate after the iterations so far: a function of their figures."""

    def rate_after(figures: list[dict[str, Any]]) -> float:
        moved = [each.get("behaviour_kl") or 0.0 for each in figures]  # none where no group differed
        pace, rate = median(moved[FIRST] or [0.0]), most
        for each in moved[FIRST.stop :]:
            if each > 2 * pace:
                rate /= FACTOR
            elif each < pace / 2:
                rate = min(most, rate * FACTOR)
        return rate

    return rate_after


def digits(outcomes: pd.Series) -> str:
    """A digit for each task."""
    return "".join(str(int(each)) for each in outcomes)


def rate(outcomes: str) -> float:
    """The mean over tasks."""
    return fmean(map(int, outcomes))


def chosen(outcomes: Outcomes) -> dict[str, str]:
    """The iteration that each way chooses."""
    greedy, sampled = outcomes[VALIDATION], outcomes[f"{VALIDATION}, sampled"]
    iterations = sorted(greedy, key=int)
    rates = [(rate(greedy[each]) + rate(sampled[each]) / VALIDATION_SAMPLES) / 2 for each in iterations]
    found = {}
    for name, width in NEIGHBOURS.items():
        half = width // 2
        means = [fmean(rates[max(0, place - half) : place + half + 1]) for place in range(len(rates))]
        found[name] = iterations[means.index(max(means)) if width else -1]
    return found


def averaged(adapters: list[Path], out: Path) -> Path:
    """The adapter whose products are nearest to the mean of the adapters' products."""
    shutil.copytree(adapters[-1], out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("probe*"))  # of other weights
    layers = [layers_of(load_file(folder / WEIGHTS)) for folder in adapters]
    means = {name: summed((1.0 / len(layers), one[name]) for one in layers) for name in layers[0]}
    ranks = {name: len(layer.a) for name, layer in layers[0].items()}
    save_file(adapter_of({name: nearest(mean, ranks[name]) for name, mean in means.items()}), out / WEIGHTS, {"format": "pt"})
    return out


def page(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Markdown: each arm and way of choosing, and what it gains over the demo's."""
    rows, rates, by_task, chosen_in = [], {}, {}, {}
    for arm, roundings in results.items():
        loops = {(rounding, seed): each["outcomes"] for rounding, of in roundings.items() for seed, each in of.items()}
        ways = {name: {key: chosen(each)[name] for key, each in loops.items()} for name in NEIGHBOURS}
        if arm == "constant":
            ways[AVERAGED] = dict.fromkeys(loops, f"{LATE[-1]} averaged")
        for way, of in ways.items():
            row = [arm, way, str(len(loops))]
            for split in (HELD_OUT, HARDER):
                found = {key: 100 * rate(loops[key][split][of[key]]) for key in loops}
                rates[arm, way, split] = found
                by_task[arm, way, split] = {key: np.array([*map(int, loops[key][split][of[key]])]) for key in loops}
                spread = f"{stdev(found.values()):.1f}" if len(found) > 1 else "-"
                row += [f"{fmean(found.values()):.1f}", spread]
            within = "-"
            if way in ("last", AVERAGED):
                late = [str(each) if way == "last" else f"{each} averaged" for each in LATE]
                within = f"{fmean(stdev(100 * rate(each[HELD_OUT][name]) for name in late) for each in loops.values()):.1f}"
            rows.append([*row, within])
            chosen_in[arm, way] = ", ".join(sorted({each.split()[0] for each in of.values()}, key=int))
    usual = ("constant", "best")
    differences = {}
    for (arm, way, split), found in rates.items():
        base = rates.get((*usual, split), {})
        seeds = sorted({seed for _, seed in found.keys() & base.keys()})
        if (arm, way) == usual or split == HARDER or len(seeds) < 2:
            continue
        # A seed's two roundings share its tasks and draws, so that their mean is one figure.
        keys = [[key for key in found.keys() & base.keys() if key[1] == seed] for seed in seeds]
        differences[f"{arm}, {way}"] = difference_of(
            *([np.mean([by_task[*each, split][key] for key in of], axis=0) for of in keys] for each in ((arm, way), usual))
        )
    about = " ".join(str(__doc__).split("\n\n", 2)[2].split())
    head = [
        "learning rate",
        "chosen",
        "loops",
        "held out",
        "spread",
        "harder",
        "spread",
        "held out, spread within a loop's end",
    ]
    every = ["learning rate", "chosen", *(f"{rounding}, seed {seed}" for rounding, seed in sorted(rates[*usual, HELD_OUT]))]
    each_loop = [
        [arm, way, *(f"{found[key]:.1f}" if key in found else "-" for key in sorted(rates[*usual, HELD_OUT]))]
        for (arm, way, split), found in rates.items()
        if split == HELD_OUT
    ]
    return (
        f"# Late policies\n\nWritten by `benchmarks/late_policies.py`. {about}\n\n{table(head, rows)}"
        f"\n\nMinus the demo's way, held out, in points, a seed's roundings as one:\n\n{method_table(differences)}"
        f"\n\nHeld out, each loop:\n\n{table(every, each_loop)}\n"
    )


if __name__ == "__main__":
    main()
