"""Sequential evaluation against one look at all tasks: promotions, errors and the share of episodes that are played.

    python benchmarks/sequential_evaluation.py --out benchmarks/results/sequential_evaluation.json

Each comparison has tasks of random difficulty; both policies play one greedy and four sampled episodes of each. A task's
difference is the gate's: half greedy, half sampled success. Both designs use the gate's own test.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from tracewheel.evaluation.gate import shows_gain
from tracewheel.evaluation.sequential import SequentialDesign

TASKS, SAMPLES, SEED = 200, 4, 20261122
GAINS = (-0.1, 0.0, 0.05, 0.1, 0.2, 0.3)


def differences(stream: np.random.Generator, gain: float) -> np.ndarray:
    """Paired differences of TASKS tasks: the challenger's chance is the baseline's plus the gain, within 0 to 1."""
    chance = stream.beta(0.7, 0.7, size=TASKS)
    better = np.clip(chance + gain * 4 * chance * (1 - chance) * 1.5, 0.0, 1.0)

    def figure(odds: np.ndarray) -> np.ndarray:
        return 0.5 * (stream.random(TASKS) < odds) + 0.5 * stream.binomial(SAMPLES, odds) / SAMPLES

    return figure(better) - figure(chance)


def simulate(gain: float, level: float, looks: int, runs: int) -> dict[str, float]:
    stream = np.random.default_rng([SEED, round(1000 * (gain + 1)), looks])
    design = SequentialDesign.of(level, looks)
    fixed = promoted = 0
    played: list[float] = []
    gains: list[float] = []
    for _ in range(runs):
        found = differences(stream, gain)
        gains.append(float(found.mean()))
        fixed += shows_gain(found, level)
        for look, share in enumerate(design.shares):
            answer = design.answer(found[: round(TASKS * share)], look)
            if answer != "continue":
                promoted += answer == "better"
                played.append(share)
                break
    return {
        "gain": round(float(np.mean(gains)), 4),
        "promoted_fixed": fixed / runs,
        "promoted_sequential": promoted / runs,
        "episodes_played": round(float(np.mean(played)), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--looks", type=int, default=5)
    parser.add_argument("--level", type=float, default=0.025)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = [{"wanted": gain, **simulate(gain, options.level, options.looks, options.runs)} for gain in GAINS]
    result = {"level": options.level, "looks": options.looks, "runs": options.runs, "tasks": TASKS, "seed": SEED, "rows": rows}
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
