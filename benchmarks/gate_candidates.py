"""Points after a year of nightly runs, and false promotions, with and without candidates that keep their evidence.

Levels, screen, spending and number of nights are those of `tracewheel.evaluation`. Run it from the root:

    PYTHONPATH=. python benchmarks/gate_candidates.py --out benchmarks/results/gate_candidates.json

A policy has a true success, an effect of its own on the held-out tasks at hand, and one on each of the five parts of the
reserve: these walk on with each night's training, as luck of the tasks does. An evaluation adds its episodes' noise, which
stays where episodes are stored. The difference of two evaluations on 200 tasks has the standard error SPREAD / sqrt(200);
BETWEEN is the share of its variance that lies between tasks.

Two worlds. A: a night moves the policy by SKILL plus 4 points of luck, times what is left of the odds, p (1 - p) over that of
the start, which succeeds in half of the tasks. B: by 2 points of luck, mean zero. SPREAD and SKILL are fitted: so the gate
without candidates ends at 36.2 points in A and 2.4 in B, the figures of the audit that asked for this.

Every night plays the challenger on 200 tasks. `episodes` is what a year plays, over that.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from benchmarks.gate_year import SPREADS, USUAL, World, paired_night
from tracewheel.config import GateConfig
from tracewheel.evaluation.candidate import NIGHTS, SCREEN, spent
from tracewheel.evaluation.error_budget import CONFIRMATION, NIGHT, Look, level_of
from tracewheel.evaluation.gate import shows_gain

SEED, YEARS, DAYS, TASKS = 13, 2000, 365, 200
SPREAD, BETWEEN, SKILL, START = 0.287, 0.45, 1.8, 50.0
ERROR = 100 * SPREAD / np.sqrt(TASKS)
OWN, EPISODES = ERROR * np.sqrt(BETWEEN), ERROR * np.sqrt((1 - BETWEEN) / 2)
YEARLY = GateConfig()
Array = np.ndarray
Gain = Callable[[np.random.Generator, Array], Array]


def skill_and_luck(stream: np.random.Generator, points: Array) -> Array:
    success = np.clip((START + points) / 100, 0.001, 0.999)
    left = success * (1 - success) / (START / 100 * (1 - START / 100))
    return left * (SKILL + 4.0 * stream.standard_normal(len(points)))


def luck(stream: np.random.Generator, points: Array) -> Array:
    return 2.0 * stream.standard_normal(len(points))


def nothing(stream: np.random.Generator, points: Array) -> Array:
    return np.zeros(len(points))


def a_little_worse(stream: np.random.Generator, points: Array) -> Array:
    return np.full(len(points), -0.5)


WORLDS: dict[str, Gain] = {"A": skill_and_luck, "B": luck}
NULLS: dict[str, Gain] = {"nothing changes": nothing, "each night half a point worse": a_little_worse}


@dataclass
class Policies:
    """One policy a simulated year: true points; its own effect and its noise on held-out tasks and each part of the reserve."""

    points: Array
    own: Array  # [years, 1 + NIGHTS]: held-out, then the reserve
    noise: Array  # the same

    @classmethod
    def start(cls, stream: np.random.Generator, years: int) -> Policies:
        shape = (years, 1 + NIGHTS)
        return cls(np.zeros(years), np.zeros(shape), EPISODES * stream.standard_normal(shape))

    def trained(self, stream: np.random.Generator, gain: Gain) -> Policies:
        shape = self.own.shape
        own = self.own + OWN * stream.standard_normal(shape)
        return Policies(self.points + gain(stream, self.points), own, EPISODES * stream.standard_normal(shape))

    def where(self, mask: Array, other: Policies) -> Policies:
        """The other policy in the years of the mask."""
        wide = mask[:, None]
        points = np.where(mask, other.points, self.points)
        return Policies(points, np.where(wide, other.own, self.own), np.where(wide, other.noise, self.noise))

    def seen(self, part: int | Array) -> Array:
        """The measured figure on held-out tasks (0) or a part of the reserve."""
        rows = np.arange(len(self.points))
        return self.points + self.own[rows, part] + self.noise[rows, part]

    def anew(self, stream: np.random.Generator, parts: slice) -> None:
        """Other tasks: effects and noise of these parts are drawn again."""
        shape = self.own[:, parts].shape
        self.own[:, parts] = OWN / np.sqrt(2) * stream.standard_normal(shape)
        self.noise[:, parts] = EPISODES * stream.standard_normal(shape)


class Levels:
    """Levels of looks and confirmations, as the ledger gives them."""

    def __init__(self, years: int, config: GateConfig = YEARLY) -> None:
        self.config, self.spent = config, np.zeros(years)
        self.history = np.zeros((DAYS, years))
        self.confirmations = np.zeros(years, dtype=int)

    def take(self, kind: str, night: int, mask: Array) -> Array:
        found = np.zeros(len(mask))
        for year in np.flatnonzero(mask):
            number = self.confirmations[year] + 1 if kind == CONFIRMATION else night + 1
            found[year] = level_of(self.config, Look(int(number), float(self.spent[year]), kind))
        self.spent += found
        self.confirmations += mask * (kind == CONFIRMATION)
        return found


def without_candidates(
    gain: Gain,
    years: int,
    level: float | None = None,
    fresh: bool = False,
    config: GateConfig = YEARLY,
    days: int = DAYS,
) -> dict[str, float]:
    """The gate that looks once at each challenger: at the year's levels, or at one level each night."""
    stream, champion = np.random.default_rng(SEED), Policies.start(np.random.default_rng(SEED + 1), years)
    tally, total = Tally(years), 0.0
    for night in range(days):
        at = level_of(config, Look(night + 1, total)) if level is None else level
        total += at
        if fresh:
            champion.anew(stream, slice(0, 1))
        challenger = champion.trained(stream, gain)
        promoted = challenger.seen(0) - champion.seen(0) > -NormalDist().inv_cdf(at) * ERROR
        tally.promoted(promoted, challenger, champion)
        champion = champion.where(promoted, challenger)
        tally.serves(champion)
    return tally.record(champion)


def with_candidates(
    gain: Gain, years: int, fresh: bool = True, config: GateConfig = YEARLY, days: int = DAYS
) -> dict[str, float]:
    """The gate with candidates. `fresh`: the reserve has other tasks each time; else the same 1,000 all year."""
    stream, champion = np.random.default_rng(SEED), Policies.start(np.random.default_rng(SEED + 1), years)
    tally, levels = Tally(years), Levels(years, config)
    candidate, waits = champion, np.zeros(years, dtype=bool)
    nights, sums, level = np.zeros(years, dtype=int), np.zeros(years), np.zeros(years)
    stored = np.zeros((years, 1 + NIGHTS), dtype=bool)  # parts that the champion has played
    screen = -NormalDist().inv_cdf(SCREEN) * ERROR
    for night in range(days):
        asked = waits.copy()
        nights = nights + asked
        part = np.clip(nights, 1, NIGHTS)
        if fresh:
            seen = candidate.points - champion.points + ERROR * stream.standard_normal(years)
        else:
            seen = candidate.seen(part) - champion.seen(part)
        sums = np.where(asked, sums + seen, sums)
        known = stored[np.arange(years), part] & (not fresh)
        tally.played += asked * np.where(known, 1.0, 2.0)
        stored[np.arange(years), part] |= asked
        mean = sums / np.maximum(nights, 1)
        before, now = (_spent(level, np.clip(nights - less, 0, NIGHTS)) for less in (1, 0))
        needed = -ndtri(np.maximum(now - before, 1e-300)) * ERROR / np.sqrt(np.maximum(nights, 1))
        proven = asked & (mean > needed)
        dropped = asked & ~proven & ((mean <= 0.0) | (nights >= NIGHTS))
        tally.promoted(proven, candidate, champion)
        champion = champion.where(proven, candidate)
        stored &= ~proven[:, None]
        waits &= ~(proven | dropped)
        begins = ~proven  # the night that proves a candidate trains nothing
        start = champion.where(waits, candidate)
        challenger = start.trained(stream, gain)
        gained = challenger.seen(0) - start.seen(0)
        tally.played += begins
        looks = begins & ~waits
        at = levels.take(NIGHT, night, looks)
        promoted = looks & (gained > -ndtri(np.maximum(at, 1e-300)) * ERROR)
        tally.promoted(promoted, challenger, champion, at_once=True)
        champion = champion.where(promoted, challenger)
        stored &= ~promoted[:, None]
        named = begins & ~promoted & (gained > screen)
        level = np.where(named, levels.take(CONFIRMATION, night, named), level)
        candidate, waits = candidate.where(named, challenger), waits | named
        nights, sums = np.where(named, 0, nights), np.where(named, 0.0, sums)
        tally.confirmations += named
        tally.serves(champion)
    return tally.record(champion)


def one_confirmation(gain: float, level: float, trials: int) -> dict[str, Any]:
    """Task by task, by the gate's own tests: 200 new tasks a night for five nights, "hard and easy" as in `gate_year`."""
    stream, world = np.random.default_rng(SEED), World(SPREADS[USUAL])
    shift, ends = world.shift_for(gain), np.zeros(NIGHTS + 1)
    for _ in range(trials):
        seen: list[Array] = []
        for night in range(1, NIGHTS + 1):
            ease = world.ease(stream, TASKS)
            seen.append(paired_night(world, stream, ease, world.play(stream, ease), shift).lowest)
            at = spent(level, night / NIGHTS) - spent(level, (night - 1) / NIGHTS)
            values = np.concatenate(seen)
            if shows_gain(values, at):
                ends[night] += 1
                break
            if values.mean() <= 0.0:
                break
    return {
        "gain": gain,
        "level": level,
        "trials": trials,
        "promoted": float(ends.sum() / trials),
        "by_night": (ends / trials).tolist(),
    }


def _spent(level: Array, nights: Array) -> Array:
    """`candidate.spent` of arrays."""
    with np.errstate(divide="ignore", invalid="ignore"):
        z = ndtri(np.maximum(level, 1e-300) / 2)
        return np.where(nights > 0, 2.0 * ndtr(z / np.sqrt(np.maximum(nights, 1) / NIGHTS)), 0.0)


class Tally:
    """What is counted over the simulated years."""

    def __init__(self, years: int) -> None:
        self.promotions, self.false, self.played, self.confirmations, self.now = (np.zeros(years) for _ in range(5))
        self.points: list[Array] = []  # true points above the start of what serves each day

    def promoted(self, mask: Array, new: Policies, old: Policies, at_once: bool = False) -> None:
        self.promotions += mask
        self.now += mask & at_once
        self.false += mask & (new.points <= old.points)

    def serves(self, champion: Policies) -> None:
        self.points.append(champion.points)

    def record(self, champion: Policies) -> dict[str, float]:
        years = len(champion.points)
        return {
            "points": float(champion.points.mean()),
            "standard_error": float(champion.points.std() / np.sqrt(years)),
            "point_days": float((area := np.sum(self.points, axis=0)).mean()),
            "point_days_error": float(area.std() / np.sqrt(years)),
            "promotions": float(self.promotions.mean()),
            "at_once": float(self.now.mean()),
            "confirmations": float(self.confirmations.mean()),
            "years_with_a_false_promotion": float((self.false > 0).mean()),
            "false_promotions_a_year": float(self.false.mean()),
            "episodes": float(self.played.mean() / len(self.points)) if self.played.any() else 1.0,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/gate_candidates.json"))
    parser.add_argument("--years", type=int, default=YEARS)
    parser.add_argument("--trials", type=int, default=1000)
    options = parser.parse_args()
    assert abs(_spent(np.array([0.003]), np.array([2]))[0] - spent(0.003, 2 / NIGHTS)) < 1e-15
    once = {level: level_of(YEARLY.model_copy(update={"promise": level}), Look()) for level in ("nightly", "expected_loss")}
    rules: dict[str, Callable[[Gain], dict[str, float]]] = {
        "one look a night (before)": lambda gain: without_candidates(gain, options.years),
        "yearly: candidates, new tasks": lambda gain: with_candidates(gain, options.years),
        "yearly: candidates, the same reserve": lambda gain: with_candidates(gain, options.years, fresh=False),
        "nightly": lambda gain: without_candidates(gain, options.years, once["nightly"]),
        "expected_loss": lambda gain: without_candidates(gain, options.years, once["expected_loss"]),
    }
    found: dict[str, Any] = {"seed": SEED, "years": options.years, "spread": SPREAD, "between": BETWEEN, "skill": SKILL}
    for name, rule in rules.items():
        found[name] = {world: rule(gain) for world, gain in (WORLDS | NULLS).items()}
        print(name, json.dumps(found[name]), flush=True)
    found["one confirmation"] = [
        one_confirmation(gain, level, options.trials) for gain, level in ((0.0, 0.025), (0.03, 0.0005), (0.05, 0.0005))
    ]
    print("one confirmation", json.dumps(found["one confirmation"]), flush=True)
    options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
