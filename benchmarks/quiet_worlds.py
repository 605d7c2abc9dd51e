"""Worlds in which nothing happens, and what is found in them: drift, screening, task difficulty, agreement of judges.

    python benchmarks/quiet_worlds.py drift screening difficulty judges --out benchmarks/results/quiet_worlds.json

Each figure stands beside its nominal value, with its simulation error (two standard errors).

**Drift.** A year of 40 attempts a day at new tasks of four families, by 120 users who come and go; a run completes every 20
nights, 60 days are known before, and the log reaches back 120 days. Users prefer families (a Dirichlet distribution of
concentration 2 around the mix) and differ in success (a standard deviation of 15 points); at weekends the mix is reversed and
success 10 points lower. Looks are made as `tasks/records/decisions.py` makes them. Power is measured from the night on which a
family's share rises by 20 points, or success falls by 20, for all users.

**Screening.** Years of batches of 40 to 120 records by 60 users, a few of whom have most of the traffic. Rewards that the
verifier contradicts are 2%, in some worlds more in some nights than in others. Poison: a user whom nobody knew has half of
the traffic; rewards flipped by half a point more each night.

**Difficulty.** Tasks whose true rates come from a Beta distribution, with one to sixteen attempts each.

**Judges.** 40 tasks with 1 to 9 labelled episodes each; a judge is right more often on some tasks than on others.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from pathlib import Path
from typing import Any

import measuring
import numpy as np
import pandas as pd

from tracewheel.curation.difficulty import pass_rates
from tracewheel.operations.drift import find_drift
from tracewheel_graders.judges.calibration import Judged, calibration
from tracewheel_screening.batch_profile import BatchProfile, short_hash
from tracewheel_screening.checks import reasons, screen
from tracewheel_screening.settings import ScreeningSettings

SEED = 47
FAMILIES = np.array(["alpha", "beta", "gamma", "delta"])
MIX, SUCCESS = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.8, 0.7, 0.6, 0.5])
MONDAY = np.datetime64("2026-01-05")
KNOWN, YEAR, RUN_EVERY, REACHES_BACK = 60, 365, 20, 120
LEVEL, LOOKS = 0.1, 200  # DRIFT_LEVEL and LOOKS_A_YEAR of the decisions


def share(hits: float, n: int) -> dict[str, float]:
    """A rate with two standard errors of the simulation, of the rate as it would be with one more of each."""
    rate, steady = hits / n, (hits + 1) / (n + 2)
    return {"rate": rate, "error": 2 * math.sqrt(steady * (1 - steady) / n), "n": n}


def attempts(
    stream: np.random.Generator, days: int, *, prefers: bool, weekends: bool, daily: int, change: dict[str, float] | None = None
) -> pd.DataFrame:
    """Attempts of so many days; `change` begins on a `day`, and moves `mix` or `success` by so much."""
    users = 120 + days // 2  # each is there for a time, and the last ones come late
    begins = np.concatenate([np.zeros(120, dtype=int), np.sort(stream.integers(0, days, users - 120))])
    ends = begins + stream.geometric(1 / 240, users)
    activity = stream.lognormal(0.0, 1.0, users)
    own = stream.dirichlet(2.0 * MIX, users) if prefers else np.tile(MIX, (users, 1))
    skill = stream.normal(0.0, 0.15, users) if prefers else np.zeros(users)
    rows = []
    for day in range(days):
        here = activity * (begins <= day) * (ends > day)
        who = stream.choice(users, stream.poisson(daily), p=here / here.sum())
        mix = own[who]
        off = weekends and day % 7 >= 5
        if off:
            mix = mix[:, ::-1]
        after = change is not None and day >= change["day"]
        if after:
            moved = stream.random(len(who)) < change.get("mix", 0.0) / (1 - MIX[-1])
            mix = np.where(moved[:, None], np.eye(4)[-1], mix)
        family = (stream.random(len(who))[:, None] > mix.cumsum(1)).sum(1).clip(max=3)
        rate = SUCCESS[family] + skill[who] - 0.1 * off - (change.get("success", 0.0) if after else 0.0)
        rows.append(
            pd.DataFrame(
                {"user": who, "family": FAMILIES[family], "success": (stream.random(len(who)) < rate).astype(float), "day": day}
            )
        )
    found = pd.concat(rows, ignore_index=True)
    name = found.index.astype(str)
    created = np.datetime_as_string(MONDAY + found["day"].to_numpy()) + "T12:00:00+00:00"
    return found.assign(user="u" + found["user"].astype(str), session=None, trace_id=name, task_id="t" + name, created=created)


def first_alarm(
    stream: np.random.Generator, world: dict[str, Any], begin: int, end: int, change: dict[str, float] | None = None
) -> int | None:
    """The first day on which a look finds a drift."""
    found = attempts(stream, end, change=change, **world)
    before_day, last, looked = begin, 0, begin
    for day in range(begin, end):
        if day - before_day == RUN_EVERY:
            before_day, last = day, 0
        known = found[(found["day"] < before_day) & (found["day"] >= before_day - REACHES_BACK)]
        since = found[(found["day"] >= before_day) & (found["day"] <= day)]
        due = len(since) >= math.ceil(1.25 * last) or day - looked >= 2 if last else len(since) >= 5
        if not due:
            continue
        last, looked = len(since), day
        if find_drift(known, since, LEVEL / LOOKS).found:
            return day
    return None


def drift(scale: float) -> list[dict[str, Any]]:
    worlds = {
        "users prefer families": {"prefers": True, "weekends": False, "daily": 40},
        "weekends differ": {"prefers": False, "weekends": True, "daily": 40},
        "both": {"prefers": True, "weekends": True, "daily": 40},
    }
    rows = []
    for number, (name, world) in enumerate(worlds.items()):
        years = max(2, round(20 * scale))
        alarms = sum(
            first_alarm(np.random.default_rng([SEED, number, year]), world, KNOWN, KNOWN + YEAR) is not None
            for year in range(years)
        )
        rows.append({"figure": "quiet years with an alarm", "world": name, "nominal": "at most 10%"} | share(alarms, years))
    for number, (name, world) in enumerate(worlds.items()):
        for what in ("mix", "success") if name == "both" else ("mix",):
            trials, seen = max(2, round(60 * scale)), 0
            for trial in range(trials):
                stream = np.random.default_rng([SEED, 100 + number, len(what), trial])
                day = KNOWN + RUN_EVERY + int(stream.integers(RUN_EVERY))
                alarm = first_alarm(stream, world, KNOWN, day + 7, {"day": day, what: 0.2})
                seen += alarm is not None and alarm >= day  # an earlier alarm is a false one
            goal = "at least 90%" if what == "mix" else "-"
            rows.append(
                {"figure": f"{what} moves by 20 points, seen in 7 days", "world": name, "nominal": goal} | share(seen, trials)
            )
    return rows


def nights(
    stream: np.random.Generator, count: int, world: dict[str, Any], poison: str = "", begin: int = 0
) -> list[BatchProfile]:
    """Batches of so many nights; the poison begins with night `begin`."""
    users = 60 + count // 3  # every third night brings a new one
    activity = stream.lognormal(0.0, world["heavy"], users)
    found = []
    for night in range(count):
        off = world["weekends"] and night % 7 >= 5
        records = int(stream.integers(40, 121)) // (2 if off else 1)
        here = activity * (np.arange(users) < 60 + night // 3)
        if off:
            here = here * (np.arange(users) % 3 == 0)
        who = np.char.add("u", stream.choice(users, records, p=here / here.sum()).astype(str))
        growth = max(0, night - begin + 1)
        if poison == "stranger" and growth:
            who[: records // 2] = "stranger"
        base = 0.04 if off else 0.02
        rate = stream.beta(base * world["alike"], (1 - base) * world["alike"]) if world["alike"] else base
        flipped = rate + (0.005 * growth if poison == "flips" else 0.0)
        tasks = np.char.add("t", stream.integers(0, 400, records).astype(str))
        names = {
            kind: dict(sorted(Counter(own.tolist()).items(), key=lambda item: -item[1]))
            for kind, own in (("user", who), ("task", tasks))
        }
        few = stream.binomial(records, 0.02, 3).tolist()
        found.append(
            BatchProfile(
                read=records, kept=records, replayed=records, rewarded=records, quarantined=few[0], other_replies=few[1],
                duplicates=few[2], disagreeing=int(stream.binomial(records, flipped)), names=names,
                named={"user": records, "task": records}, users=sorted(map(short_hash, names["user"])),
            )
        )  # fmt: skip
    return found


def screening(scale: float) -> list[dict[str, Any]]:
    worlds = {
        "nights alike": {"heavy": 0.5, "weekends": False, "alike": 0},
        "a few users have most": {"heavy": 1.5, "weekends": False, "alike": 0},
        "nights and weekends differ": {"heavy": 1.0, "weekends": True, "alike": 60},
    }
    config, rows = ScreeningSettings(), []
    for number, (name, world) in enumerate(worlds.items()):
        years, held = max(1, round(10 * scale)), 0
        for year in range(years):
            history: list[BatchProfile] = []
            for batch in nights(np.random.default_rng([SEED, 200 + number, year]), YEAR, world):
                held += bool(reasons(screen(batch, history, config)))
                history.append(batch)
        error = 2 * math.sqrt(held + 1) / years
        row = {"figure": "quiet nights held in a year", "world": name, "nominal": "at most 1"}
        rows.append(row | {"rate": held / years, "error": error, "n": years, "unit": ""})
        for poison, figure, goal, last in (
            ("stranger", "a new user with half of the traffic, held on the first night", "held", 1),
            ("flips", "flips that grow by half a point a night, held within 30 nights", "held", 30),
        ):
            trials, held = max(2, round(100 * scale)), 0
            days = []
            for trial in range(trials):
                begin = 30 + trial % 30
                made = nights(np.random.default_rng([SEED, 300 + number, trial]), begin + last, world, poison, begin)
                check = {"stranger": ("new_users", "user"), "flips": ("rewards",)}[poison]
                nights_until = next(
                    (
                        night - begin + 1
                        for night in range(begin, begin + last)
                        if any(result.check in check for result in reasons(screen(made[night], made[:night], config)))
                    ),
                    None,
                )
                held += nights_until is not None
                days.append(nights_until or last + 1)
            row = {"figure": figure, "world": name, "nominal": goal}
            rows.append(row | share(held, trials) | {"median_night": float(np.median(days))})
    return rows


def difficulty(scale: float) -> list[dict[str, Any]]:
    rows = []
    for name, shape in (
        ("U-shaped, Beta(0.1, 0.1)", 0.1),
        ("U-shaped, Beta(0.3, 0.3)", 0.3),
        ("uniform", 1.0),
        ("alike, Beta(5, 5)", 5.0),
    ):
        for tries in (1, 4, 16):
            stream, tasks = np.random.default_rng([SEED, tries, round(10 * shape)]), max(100, round(4000 * scale))
            rates = stream.beta(shape, shape, tasks)
            names = np.repeat(np.char.add("t", np.arange(tasks).astype(str)), tries)
            solved = (stream.random(tasks * tries) < np.repeat(rates, tries)).astype(float)
            found, _ = pass_rates(pd.DataFrame({"id": np.arange(len(names)).astype(str), "task_id": names, "success": solved}))
            found = found.set_index("task_id").loc[names[::tries]]
            inside = int(((found["low"].to_numpy() <= rates) & (rates <= found["high"].to_numpy())).sum())
            world = f"{name}, {tries} attempts a task"
            rows.append(
                {"figure": "interval covers a task's pass rate", "world": world, "nominal": "90%"} | share(inside, tasks)
            )
    return rows


def judges(scale: float) -> list[dict[str, Any]]:
    rows = []
    for tasks, alike in ((40, 0.0), (40, 0.2), (40, 0.5), (15, 0.3)):
        trials = max(20, round(600 * scale))
        inside: Counter[str] = Counter()
        right, passing = 0.85, 0.5
        stream = np.random.default_rng([SEED, tasks, round(100 * alike)])
        size = 1 / alike - 1 if alike else 0.0
        for _ in range(trials):
            sizes = stream.integers(1, 10, tasks)
            rate = stream.beta(right * size, (1 - right) * size, tasks) if size else np.full(tasks, right)
            of = np.repeat(np.arange(tasks), sizes)
            passes = stream.random(len(of)) < passing
            says = np.where(stream.random(len(of)) < rate[of], passes, ~passes)
            found = calibration([Judged(str(task), bool(p), bool(s), 1) for task, p, s in zip(of, passes, says, strict=True)])
            truths = {"agreement": right, "false_accept": 1 - right, "kappa": 2 * right - 1}
            for name, truth in truths.items():
                ends = found[name]["interval"]
                inside[name] += ends is not None and ends[0] <= truth <= ends[1]
        world = f"{tasks} tasks with 1 to 9 episodes, correlation {alike:g}"
        rows += [
            {"figure": f"interval covers {name}", "world": world, "nominal": "95%"} | share(inside[name], trials)
            for name in ("agreement", "false_accept", "kappa")
        ]
    return rows


def percent(row: dict[str, Any]) -> str:
    if "unit" in row:
        return f"{row['rate']:.2f} ± {row['error']:.2f}"
    return f"{100 * row['rate']:.1f}% ± {100 * row['error']:.1f}"


PARTS = {"drift": drift, "screening": screening, "difficulty": difficulty, "judges": judges}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=list(PARTS))
    parser.add_argument("--scale", type=float, default=1.0, help="share of the simulated years and trials")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with measuring.Meter() as spent:
        for part in options.parts:
            rows += [{"part": part, **row} for row in PARTS[part](options.scale)]
    lines = ["| part | figure | world | nominal | measured | n |", "|---|---|---|---|---:|---:|"]
    lines += [
        f"| {row['part']} | {row['figure']} | {row['world']} | {row['nominal']} | {percent(row)} | {row['n']} |" for row in rows
    ]
    result = {"seed": SEED, "machine": measuring.machine(1), "cpu_s": round(spent.cpu_s), "rows": rows}
    measuring.emit(result, "\n".join(lines), options.out)


if __name__ == "__main__":
    main()
