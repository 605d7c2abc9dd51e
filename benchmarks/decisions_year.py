"""A year of nightly decisions: false alarms and power of the test of drift, and how often the interval of a gain covers it.

    python benchmarks/decisions_year.py --out benchmarks/results/decisions_year.json

Drift: every look goes through `operations.drift.judge_drift` at the level of `evaluation.error_budget.level_of`, when the
attempts have grown by a quarter, as in `drift_looks.py`. Each night brings `NIGHTLY` single attempts at new tasks of
four families; a run completes every `CYCLE` nights, and what it knew is compared with.

Gains: a year of retrains that each gain a share of their room, drawn around that of the demo, as the gate measures it.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from tracewheel.config import GateConfig
from tracewheel.evaluation.error_budget import Look, level_of
from tracewheel.operations.drift import Stratum, judge_drift
from tracewheel.operations.worth import CONFIDENCE, PastRun, expected_gain

SEED, NIGHTS, NIGHTLY, CYCLE, BEFORE, LEVEL = 29, 365, 12, 20, 300, 0.1
LEAST, GROWTH, LOOKS_A_YEAR = 5, 1.25, 200
CONFIG = GateConfig(confidence=1.0 - 2.0 * LEVEL, gates_per_year=LOOKS_A_YEAR)
RATES, MIX = np.array([0.9, 0.7, 0.5, 0.3]), np.array([0.4, 0.3, 0.2, 0.1])


def night(stream: np.random.Generator, attempts: int, rates: np.ndarray, mix: np.ndarray) -> np.ndarray:
    """[2, families] successes and attempts at new tasks."""
    tried = stream.multinomial(attempts, mix)
    return np.array([stream.binomial(tried, rates), tried])


def drifted_at(known: np.ndarray, new: np.ndarray, level: float) -> bool:
    """One look, as `find_drift` makes it of single attempts at different tasks."""
    names = [f"family {number}" for number in range(known.shape[1])]
    strata = [
        (name, Stratum(*map(int, (*new[:, place], *known[:, place]))))
        for place, name in enumerate(names)
        if new[1, place] and known[1, place]
    ]
    before, after = (dict(zip(names, map(int, counts[1]), strict=True)) for counts in (known, new))
    return judge_drift(strata, before, after, level).found


def year(stream: np.random.Generator, drifted: tuple[np.ndarray, np.ndarray] | None = None, from_night: int = 100) -> list[int]:
    """Nights on which a drift was found; with `drifted` rates and mix from a night on, until it is found first."""
    known, new = night(stream, BEFORE, RATES, MIX), np.zeros((2, len(MIX)), dtype=int)
    spent: list[float] = []
    found: list[int] = []
    looked_at = 0
    for number in range(NIGHTS):
        changed = drifted is not None and number >= from_night
        new = new + night(stream, NIGHTLY, *(drifted if drifted and changed else (RATES, MIX)))
        count = int(new[1].sum())
        if count >= max(LEAST, math.ceil(GROWTH * looked_at)):
            looked_at = count
            spent.append(level_of(CONFIG, Look(len(spent) + 1, sum(spent))))
            if drifted_at(known, new, spent[-1]):
                found.append(number)
                if changed:
                    return found
        if count >= CYCLE * NIGHTLY and not changed:
            known, new, looked_at = known + new, np.zeros_like(new), 0
    return found


def false_alarms(years: int) -> dict[str, Any]:
    stream = np.random.default_rng(SEED)
    alarms = [len(year(stream)) for _ in range(years)]
    return {"years": years, "years_with_an_alarm": sum(map(bool, alarms)), "alarms": sum(alarms), "level": LEVEL}


def delays(trials: int) -> list[dict[str, Any]]:
    """Nights until a drift that begins on night 100 is found."""
    worlds = {
        "every family falls by 15 points": (RATES - 0.15, MIX),
        "every family falls by 30 points": (RATES - 0.3, MIX),
        "one family of a third falls from 70% to 20%": (np.array([0.9, 0.2, 0.5, 0.3]), MIX),
        "mix from 40/30/20/10 to 25/25/25/25": (RATES, np.full(4, 0.25)),
        "mix from 40/30/20/10 to 10/20/30/40": (RATES, MIX[::-1]),
    }
    rows = []
    for name, world in worlds.items():
        stream = np.random.default_rng(SEED)
        nights = [next((number - 99 for number in year(stream, world) if number >= 100), None) for _ in range(trials)]
        hits = sorted(number for number in nights if number is not None)
        rows.append(
            {
                "drift": name,
                "trials": trials,
                "found_within_20_nights": sum(number <= 20 for number in hits) / trials,
                "median_nights": hits[len(hits) // 2] if len(hits) > trials / 2 else None,
            }
        )
    return rows


def coverage(years: int) -> list[dict[str, Any]]:
    """How often the interval covers the gain that the gate measures, by the number of past runs.

    A folder's runs close 34% of the room on average (the demo's run gains 20.9 points, of a room of about 62 if that is what
    the logged agent fails), give or take 15 points from folder to folder and from run to run each. A tenth of the runs breaks
    and loses. The room shrinks with each gain and grows again with new tasks. The gate measures with a standard error of 3
    points (200 tasks, differences that spread by 0.42).
    """
    stream = np.random.default_rng(SEED)
    inside: dict[str, list[bool]] = {"0": [], "1 to 4": [], "5 to 11": [], "12 and more": []}
    for _ in range(years):
        folder, room = stream.normal(0.34, 0.15), 0.62
        past: list[PastRun] = []
        for number in range(36):
            new = float(stream.beta(1.0, 4.0))
            share = -0.3 if stream.random() < 0.1 else stream.normal(folder + 0.1 * new, 0.15)
            gain = room * share + stream.normal(0.0, 0.03)
            found = expected_gain(room, new, past)
            kind = "0" if not number else "1 to 4" if number < 5 else "5 to 11" if number < 12 else "12 and more"
            inside[kind].append(found.low <= gain <= found.high)
            past.append(PastRun(gain, room, new, 0.0, 0))
            room = float(np.clip(room - max(0.0, room * share) + 0.3 * new, 0.02, 0.62))
    return [
        {"past_runs": kind, "covered": float(np.mean(hits)), "gains": len(hits), "nominal": CONFIDENCE}
        for kind, hits in inside.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--years", type=int, default=200)
    parser.add_argument("--trials", type=int, default=100)
    options = parser.parse_args()
    started = time.process_time()
    result = {
        "seed": SEED,
        "false_alarms": false_alarms(options.years),
        "delays": delays(options.trials),
        "coverage": coverage(options.years),
    }
    result["cpu_seconds"] = round(time.process_time() - started)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
