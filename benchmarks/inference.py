"""Tests, intervals and rules of the gate where tasks hang together, where rates are near 0, and where a family is harmed.

Every figure is beside its nominal value, with the standard error of the simulation. Run it from the root (about four minutes of
one core):

    python benchmarks/inference.py --out benchmarks/results/inference.json

The worlds are those of `benchmarks/gate_year.py`. Tasks of a component share a part of what training does to them; its size is
set so that the differences have an intra-class correlation of 0.10.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gate_year import CONFIG, SPREADS, USUAL, World, year_levels
from tracewheel.core.inference import mean_interval, precision, rate_interval
from tracewheel.evaluation.family_harm import family_estimates
from tracewheel.evaluation.gate import promotes, shows_gain
from tracewheel.evaluation.paired_outcomes import Paired, pair

SEED, TASKS, LEVEL = 17, 200, 0.025
SHARED = 0.62  # standard deviation of a component's part of the noise, for an intra-class correlation of 0.10
CLUSTERS = {"4": [4] * 50, "10": [10] * 20, "20": [20] * 10, "uneven": [40, 30, 20, 20, 15, 15, 10, 10, *[5] * 6, *[2] * 5]}
FIRST_NIGHT = year_levels(1)[0]


def played(world: World, stream: np.random.Generator, labels: np.ndarray, shift: np.ndarray | float, shared: float) -> Paired:
    """Two policies on the same tasks; `shared` is the standard deviation of a component's part of the change."""
    ease = world.ease(stream, len(labels))
    common = shared * stream.standard_normal(int(labels.max()) + 1)[labels]
    new = world.play(stream, world.trained(stream, ease, shift) + common)
    families = np.array(["all"] * len(labels), dtype=object)
    return pair(new, world.play(stream, ease), families, CONFIG.greedy_weight, labels)


def error_of(share: float, trials: int) -> float:
    return math.sqrt(share * (1.0 - share) / trials)


def counted(name: str, hits: int, trials: int) -> dict[str, float]:
    return {name: hits / trials, f"{name}_error": error_of(hits / trials, trials)}


def clustered(sizes: list[int], shared: float, gain: float, trials: int) -> dict[str, Any]:
    """How often a gain is shown at 2.5%, and how often the 95% interval covers, with and without components."""
    world = World(SPREADS[USUAL], noise=math.hypot(World(SPREADS[USUAL]).noise, shared))
    shift, world = world.shift_for(gain), World(SPREADS[USUAL])
    labels, stream = np.repeat(np.arange(len(sizes)), sizes), np.random.default_rng(SEED)
    shown = alone = covers = covers_alone = 0
    for _ in range(trials):
        found = played(world, stream, labels, shift, shared).lowest
        shown += shows_gain(found, LEVEL, labels)
        alone += shows_gain(found, LEVEL)
        low, high = mean_interval(found, found, LEVEL, labels)
        covers += low <= gain <= high
        low, high = mean_interval(found, found, LEVEL)
        covers_alone += low <= gain <= high
    return {
        "tasks": len(labels),
        "components": len(sizes),
        "effective": precision(found, labels).effective,
        "gain": gain,
        **counted("shown", shown, trials),
        **counted("covers", covers, trials),
        "shown_if_independent": alone / trials,
        "covers_if_independent": covers_alone / trials,
    }


def rates(trials: int) -> list[dict[str, Any]]:
    """Coverage of the interval of a rate: tasks with four episodes each, and episodes of components."""
    rows = []
    for tasks in (20, 50, 200):
        for rate in (0.02, 0.1, 0.5):
            for correlation in (0.0, 0.3, 0.7):
                rows.append(
                    {"tasks": tasks, "rate": rate, "correlation": correlation} | rate_of(tasks, 4, rate, correlation, trials)
                )
    return rows


def rate_of(tasks: int, episodes: int, rate: float, correlation: float, trials: int) -> dict[str, float]:
    stream, means, pooled = np.random.default_rng(SEED), 0, 0
    size, labels = (1 / correlation - 1) if correlation else 0.0, np.repeat(np.arange(tasks), episodes)
    for _ in range(trials):
        chance = stream.beta(rate * size, (1 - rate) * size, tasks) if correlation else np.full(tasks, rate)
        outcomes = (stream.random((tasks, episodes)) < chance[:, None]).astype(np.float64)
        low, high = rate_interval(outcomes.mean(axis=1))
        means += low <= rate <= high
        low, high = rate_interval(outcomes.ravel(), labels)
        pooled += low <= rate <= high
    return counted("covers", means, trials) | counted("covers_pooled", pooled, trials)


def family(families: int, harmed: float | None, trials: int) -> dict[str, Any]:
    """A true gain of 10 points in every family, or in all but one, which changes by `harmed`."""
    world, stream = World(SPREADS[USUAL]), np.random.default_rng(SEED)
    up = world.shift_for(0.1)
    names = np.array([f"family {number % families}" for number in range(TASKS)], dtype=object)
    shift = np.where(names == "family 0", world.shift_for(harmed), up) if harmed is not None else up
    refused = promoted = named = 0
    for _ in range(trials):
        ease = world.ease(stream, TASKS)
        new = world.play(stream, world.trained(stream, ease, shift))
        paired = pair(new, world.play(stream, ease), names, CONFIG.greedy_weight)
        found = family_estimates(paired.lowest, paired.families, CONFIG.confidence)
        harmed_any = any(one.is_harmed(CONFIG.family_margin) for one in found.values())
        refused += harmed_any
        named += found["family 0"].may_fall(CONFIG.family_margin)
        promoted += not harmed_any and shows_gain(paired.lowest, FIRST_NIGHT)
    return {
        "families": families,
        "harmed": harmed,
        **counted("refused", refused, trials),
        "promoted": promoted / trials,
        "first_family_not_ruled_out": named / trials,
    }


def greedy_rule(greedy: float, sampled: float, trials: int) -> dict[str, float]:
    """Of challengers that show a gain, how many the rule on greedy success stops; `by_point` is the earlier rule."""
    stream, shown, stopped, point = np.random.default_rng(SEED), 0, 0, 0
    world, names = World(SPREADS[USUAL]), np.array(["all"] * TASKS, dtype=object)
    shifts = world.shift_for(greedy, 1.0), world.shift_for(sampled, 0.0)
    for _ in range(trials):
        ease = world.ease(stream, TASKS)
        noise = world.noise * stream.standard_normal(TASKS)
        one, other = (world.play(stream, ease + noise + shift) for shift in shifts)
        new = type(one)(one.greedy, other.successes, other.attempts, other.offered)
        paired = pair(new, world.play(stream, ease), names, CONFIG.greedy_weight)
        if shows_gain(paired.lowest, FIRST_NIGHT):
            shown += 1
            point += paired.greedy_lowest.mean() < 0.0
            stopped += not promotes(CONFIG, paired, FIRST_NIGHT)
    return {"greedy": greedy, "sampled": sampled, "shown": shown, "stopped": stopped / shown, "stopped_by_point": point / shown}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/inference.json"))
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--only", nargs="*", help="parts to simulate again; the others stay as they are in --out")
    options = parser.parse_args()
    trials, alone = options.trials, {n: [1] * n for n in (20, 50, 200, 500)}
    parts = {
        "null, components": lambda: {name: clustered(sizes, SHARED, 0.0, trials) for name, sizes in CLUSTERS.items()},
        "null, independent": lambda: {str(n): clustered(sizes, 0.0, 0.0, trials) for n, sizes in alone.items()},
        "gain of 10 points": lambda: {
            **{name: clustered(sizes, SHARED, 0.1, trials // 2) for name, sizes in CLUSTERS.items()},
            **{f"independent, {n}": clustered(sizes, 0.0, 0.1, trials // 2) for n, sizes in list(alone.items())[:3]},
        },
        "rates": lambda: rates(trials),
        "families": lambda: [family(count, harmed, trials // 3) for count in (10, 20, 40) for harmed in (None, -0.2)],
        "greedy": lambda: [greedy_rule(*truth, trials // 2) for truth in ((0.0, 0.15), (0.0, 0.2), (-0.05, 0.25), (-0.1, 0.3))],
    }
    found: dict[str, Any] = json.loads(options.out.read_text()) if options.only else {"seed": SEED, "trials": trials}
    for name in options.only or parts:
        found[name] = parts[name]()
        print(name, json.dumps(found[name]), flush=True)
        options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
