"""How often the gate errs, and what it sees, over simulated years of nightly runs.

Every decision goes through `evaluation.gate.promotes` at the level of `evaluation.error_budget.level_of`. Run it from the root:

    python benchmarks/gate_year.py --out benchmarks/results/gate.json

A task has an ease z. The champion solves it sampled with chance sigmoid(z), and greedily with chance Phi(z / 0.8); the
challenger with z + shift + noise in place of z, because training moves each task a little. The worlds differ in how far tasks
differ in ease. The shift is set so that the compared figure gains what the scenario says on the population of tasks.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, ndtr

from tracewheel.config import GateConfig
from tracewheel.evaluation.error_budget import Look, level_of
from tracewheel.evaluation.gate import promotes, shows_gain
from tracewheel.evaluation.paired_outcomes import Outcomes, Paired, pair
from tracewheel.evaluation.power import tasks_needed

CONFIG = GateConfig()
SEED, SAMPLES, NIGHTS, TASKS = 13, 4, 365, 200
SPREADS = {"tasks much alike": 1.0, "hard and easy": 2.0, "very hard and very easy": 4.0}
USUAL = "hard and easy"
YEARS_AT_A_FIXED_LEVEL = 20
NOISE, GREEDY_NOISE, CENTRE = 0.7, 0.8, 0.3
ONE_FAMILY = np.array(["all"] * 5000, dtype=object)


@dataclass(frozen=True)
class World:
    """A population of tasks, and what training does to a policy on it."""

    spread: float
    noise: float = NOISE
    samples: int = SAMPLES

    def ease(self, stream: np.random.Generator, tasks: int) -> np.ndarray:
        return CENTRE + self.spread * stream.standard_normal(tasks)

    def trained(self, stream: np.random.Generator, ease: np.ndarray, shift: np.ndarray | float) -> np.ndarray:
        return ease + shift + self.noise * stream.standard_normal(len(ease))

    def play(self, stream: np.random.Generator, ease: np.ndarray) -> Outcomes:
        greedy = (stream.random(len(ease)) < ndtr(ease / GREEDY_NOISE)).astype(np.float64)
        played = np.full(len(ease), float(self.samples))
        return Outcomes(greedy, stream.binomial(self.samples, expit(ease)).astype(np.float64), played, played)

    @functools.cache  # noqa: B019
    def shift_for(self, gain: float, weight: float = CONFIG.greedy_weight) -> float:
        """The shift with which the compared figure gains so much, on 200,000 tasks."""
        stream = np.random.default_rng(1)
        ease = self.ease(stream, 200_000)
        noise = self.noise * stream.standard_normal(len(ease))

        def figure(z: np.ndarray) -> float:
            return float((weight * ndtr(z / GREEDY_NOISE) + (1 - weight) * expit(z)).mean())

        target, low, high = figure(ease) + gain, -6.0, 6.0
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if figure(ease + middle + noise) < target else (low, middle)
        return (low + high) / 2


def year_levels(nights: int = NIGHTS) -> list[float]:
    """The levels of a year of nightly gates, as the ledger gives them."""
    levels: list[float] = []
    for number in range(1, nights + 1):
        levels.append(level_of(CONFIG, Look(number, sum(levels))))
    return levels


def paired_night(
    world: World, stream: np.random.Generator, ease: np.ndarray, champion: Outcomes, shift: np.ndarray | float
) -> Paired:
    challenger = world.play(stream, world.trained(stream, ease, shift))
    return pair(challenger, champion, ONE_FAMILY[: len(ease)], CONFIG.greedy_weight)


def null_years(
    years: int, reused: bool, world: World, make_challenger: Callable[..., Outcomes] | None = None
) -> dict[str, Any]:
    """Years of challengers that are not better; `reused`: one champion and one set of held-out tasks all year."""
    stream, levels, shift = np.random.default_rng(SEED), year_levels(), world.shift_for(0.0)
    with_any = promotions = nightly = 0
    compared = min(years, YEARS_AT_A_FIXED_LEVEL)
    for year in range(years):
        any_promoted = False
        for night, level in enumerate(levels):
            if night == 0 or not reused:
                ease = world.ease(stream, TASKS)
                champion = world.play(stream, ease)
            if make_challenger:
                champion, challenger = make_challenger(stream)
                paired = pair(challenger, champion, ONE_FAMILY[:TASKS], CONFIG.greedy_weight)
            else:
                paired = paired_night(world, stream, ease, champion, shift)
            promoted = promotes(CONFIG, paired, level)
            promotions += promoted
            any_promoted |= promoted
            nightly += year < compared and shows_gain(paired.lowest, 0.025)
        with_any += any_promoted
    return {
        "years": years,
        "with_a_false_promotion": with_any,
        "share": with_any / years,
        "false_promotions": promotions,
        "a_year_at_2.5_percent_a_night": nightly / compared,
    }


def skewed_null(stream: np.random.Generator) -> tuple[Outcomes, Outcomes]:
    """A challenger that loses 5% of the tasks for certain and makes it good with a little on all others: mean zero."""
    broken = stream.random(TASKS) < 0.05
    played = np.full(TASKS, float(SAMPLES))
    chance = np.where(broken, 0.0, 0.05 / 0.95)
    new = Outcomes((stream.random(TASKS) < chance) * 1.0, stream.binomial(SAMPLES, chance) * 1.0, played, played)
    return Outcomes(broken * 1.0, broken * played, played, played), new


def lineage_years(years: int, played_again: bool, every: int = 60) -> dict[str, float]:
    """Years of challengers that descend from the champion, on the same held-out tasks all year.

    A challenger's chance on a task is the champion's plus noise of mean zero. On two nights of every `every` it also gains 10
    points; what is promoted becomes the champion. `played_again`: its episodes are played anew once it is champion; otherwise
    those that it was promoted on, which were lucky ones, are what the following challengers have to beat.
    """
    stream, levels = np.random.default_rng(SEED), year_levels()
    with_false = false = gains = seen = 0
    for _ in range(years):
        chance = stream.beta(0.7, 0.7, TASKS) * 0.6
        champion, had_false, found = play_chances(stream, chance), False, False
        for night, level in enumerate(levels, start=1):
            new = chance + stream.uniform(-0.6, 0.6, TASKS) * np.minimum(chance, 1.0 - chance)
            place = night % every
            better = place in (0, 1) and night >= every and chance.mean() < 0.85 and not (place == 1 and found)
            if better:
                new = np.minimum(1.0, new + 0.1)
            challenger = play_chances(stream, new)
            promoted = promotes(CONFIG, pair(challenger, champion, ONE_FAMILY[:TASKS], CONFIG.greedy_weight), level)
            if place == 0:
                gains += better
                found = False
            if promoted:
                chance, champion = new, play_chances(stream, new) if played_again else challenger
                found = better
                seen += better
                had_false |= not better
                false += not better
        with_false += had_false
    return {
        "years": years,
        "share_with_a_false_promotion": with_false / years,
        "false": false,
        "gains": gains,
        "promoted": seen,
    }


def play_chances(stream: np.random.Generator, chance: np.ndarray) -> Outcomes:
    played = np.full(len(chance), float(SAMPLES))
    greedy = (stream.random(len(chance)) < chance).astype(np.float64)
    return Outcomes(greedy, stream.binomial(SAMPLES, chance).astype(np.float64), played, played)


def two_nights(world: World, tasks: int, first_night: int, gain: float, trials: int, weight: float = 0.5) -> dict[str, float]:
    """How often a gain is promoted on a night, and within two, on the same held-out tasks against the same champion."""
    config, levels = CONFIG.model_copy(update={"greedy_weight": weight}), year_levels()
    stream, shift = np.random.default_rng(SEED), world.shift_for(gain, weight)
    once = within = 0
    spreads = []
    for _ in range(trials):
        ease = world.ease(stream, tasks)
        champion = world.play(stream, ease)
        found = []
        for night in (first_night, first_night + 1):
            challenger = world.play(stream, world.trained(stream, ease, shift))
            paired = pair(challenger, champion, ONE_FAMILY[:tasks], weight)
            found.append(promotes(config, paired, levels[night - 1]))
            spreads.append(float(paired.seen.std()))
        once += found[0]
        within += any(found)
    return {"first_night": once / trials, "within_two": within / trials, "spread": float(np.mean(spreads))}


def killed(share: float, trials: int, level: float) -> dict[str, float]:
    """A challenger like the baseline, with this share of its episodes on the hardest half of the tasks lost when they fail."""
    world = World(SPREADS[USUAL])
    stream, shift = np.random.default_rng(SEED), world.shift_for(0.0)
    promoted = left_out = 0
    for _ in range(trials):
        ease = world.ease(stream, TASKS)
        new, old = world.play(stream, world.trained(stream, ease, shift)), world.play(stream, ease)
        hard = ease <= np.median(ease)
        lost = hard & (new.greedy == 0) & (stream.random(TASKS) < share)
        gone = np.where(hard, stream.binomial((new.attempts - new.successes).astype(int), share), 0)
        new = Outcomes(np.where(lost, np.nan, new.greedy), new.successes, new.attempts - gone, new.offered)
        paired = pair(new, old, ONE_FAMILY[:TASKS], CONFIG.greedy_weight)
        promoted += promotes(CONFIG, paired, level)
        left_out += shows_gain(paired.seen, level)
    return {"promoted": promoted / trials, "promoted_if_left_out": left_out / trials}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gate.json"))
    parser.add_argument("--years", type=int, default=200)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument(
        "--only", nargs="*", metavar="PART", help="parts to simulate again; the others stay as they are in --out"
    )
    options = parser.parse_args()
    parts = {
        "null": lambda: nulls(options.years),
        "lineage": lambda: lineages(max(1, options.years // 5)),
        "gain": lambda: gains(options.trials),
        "gain with 250 tasks": lambda: two_nights(World(SPREADS["tasks much alike"]), 250, 100, 0.1, options.trials),
        "sampled evidence": lambda: evidence(options.trials),
        "killed": lambda: {str(night): killed(0.3, options.trials, year_levels()[night - 1]) for night in (1, 100)},
    }
    levels = year_levels()
    found: dict[str, Any] = json.loads(options.out.read_text()) if options.only else {}
    found |= {"seed": SEED, "tasks": TASKS, "samples": SAMPLES}
    found["levels"] = {str(night): levels[night - 1] for night in (1, 2, 10, 100, 300)} | {"sum": math.fsum(levels)}
    for name in options.only or parts:
        found[name] = parts[name]()
        print(name, json.dumps(found[name]), flush=True)
    options.out.write_text(json.dumps(found, indent=2) + "\n")


def nulls(years: int) -> dict[str, Any]:
    usual = World(SPREADS[USUAL])
    return {
        "fresh tasks each night": null_years(years, False, usual),
        "the same tasks all year": null_years(years, True, usual),
        "skewed": null_years(years, False, usual, skewed_null),
    }


def lineages(years: int) -> dict[str, Any]:
    return {
        "the episodes it was promoted on": lineage_years(years, False),
        "played again as champion": lineage_years(years, True),
    }


def gains(trials: int) -> list[dict[str, Any]]:
    return [
        {"world": name, "tasks": tasks, "night": night} | two_nights(World(spread), tasks, night, 0.1, trials)
        for name, spread in SPREADS.items()
        for tasks in (100, 200, 400)
        for night in (1, 100, 300)
    ]


def evidence(trials: int) -> list[dict[str, Any]]:
    even, rows = year_levels()[99], []
    for name, spread in SPREADS.items():
        for label, world, weight in (
            ("greedy alone", World(spread), 1.0),
            ("greedy and 4 sampled", World(spread), 0.5),
            ("greedy and 8 sampled", World(spread, samples=8), 0.5),
        ):
            power = two_nights(world, TASKS, 100, 0.1, trials, weight)
            needed = {str(gain): tasks_needed(gain, power["spread"], even) for gain in (0.05, 0.1)}
            rows.append({"world": name, "evidence": label, "tasks_needed": needed} | power)
    return rows


if __name__ == "__main__":
    main()
