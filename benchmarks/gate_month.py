"""The simulated month judged by the gate before candidates and by the gate as it is: promotions, point-days, false promotions.

    PYTHONPATH=. python benchmarks/gate_month.py

First the stored month (`results/month.json`: each day's verdict, and the champion's success on the exam) judged again. Stored
are difference, interval and, of a refusal, p-value; not the evaluations, nor any on a reserve. Then the first 30 nights of the
worlds of `gate_candidates.py`, by the default gate and by that of the stored month. Point-days are the points of what serves
above the start, summed over the days. Writes `results/gate_month.json`, and the tables between the marks of `results/month.md`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.gate_candidates import NULLS, SEED, WORLDS, YEARS, Gain, with_candidates, without_candidates
from tracewheel.config import GateConfig
from tracewheel.evaluation.candidate import SCREEN
from tracewheel.evaluation.error_budget import CONFIRMATION, NIGHT, Look, level_of

RESULTS = Path(__file__).parent / "results"
BEGIN, END = "<!-- judged again: begin -->\n", "<!-- judged again: end -->\n"
NIGHTS = 30
P_VALUE = re.compile(r", p = (\S+) at level")


def p_value(gate: Mapping[str, Any]) -> float:
    """The stored p-value of a refusal; of a promotion its level, which it did not exceed."""
    return next((float(found[1]) for reason in gate["reasons"] if (found := P_VALUE.search(reason))), gate["level"])


def nothing_changed(gate: Mapping[str, Any]) -> bool:
    """Whether no task differs: the difference is 0, and its interval is symmetric, as that of equal values is."""
    low, high = gate["interval"]
    return bool(gate["difference"] == 0.0 and math.isclose(-low, high))


def judged_again(month: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each night that had a verdict: the old one, and what the gate says now until it would have trained another policy.

    Tasks of the test side that are not held out are the most that the reserve can hold: of these, those of the harder tier and
    those that hang together with a held-out task go off.
    """
    config = GateConfig(**month["profile"]["gate"])
    harder = month["profile"]["curation"]["harder_tasks"]
    numbers, spent, found = {NIGHT: 0, "only": 0}, 0.0, []
    for day in (day for day in month["days"] if day.get("gate")):
        gate = day["gate"]
        p = p_value(gate)
        row = {
            "day": day["day"],
            "points": 100 * gate["difference"],
            "p": p,
            "old": gate["verdict"],
            "old level": gate["level"],
        }
        reserve = max(0, day["splits"]["sides"]["test"] - day["n_held_out"] - harder)
        found.append(row)
        if found[:-1] and found[-2].get("now") in ("waits", "not known"):
            row["now"] = "not known"
        elif nothing_changed(gate):
            row["now"] = "not asked"
        else:
            kind = NIGHT if reserve >= config.min_pairs else "only"
            numbers[kind] += 1
            level = level_of(config, Look(numbers[kind], spent, kind))
            spent += level
            waits = kind == NIGHT and p <= SCREEN
            row |= {"reserve at most": reserve, "level": level}
            row["now"] = "promoted" if p <= level else "waits" if waits else "refused"
            if row["now"] == "waits":
                row["level of the confirmation"] = level_of(config, Look(1, spent, CONFIRMATION))
    return found


def of_the_month(month: Mapping[str, Any]) -> dict[str, Any]:
    """The stored month: verdicts, and the exam's point-days above the first champion."""
    exam = [(day["day"], day["exam"]["champion"], day["exam"]["success"]) for day in month["days"]]
    start = exam[0][2]
    gains = [
        {"day": day, "points": 100 * (success - before)}
        for (_, old, before), (day, new, success) in pairwise(exam)
        if new != old
    ]
    return {
        "nights": judged_again(month),
        "point_days_over_first_champion": 100 * sum(success - start for _, _, success in exam),
        "later_promotions_on_the_exam": gains,
    }


def rules_of(config: GateConfig, months: int) -> dict[str, Callable[[Gain], dict[str, float]]]:
    """The gates that are compared."""
    once = {name: level_of(config.model_copy(update={"promise": name}), Look()) for name in ("nightly", "expected_loss")}
    return {
        "one look a night (before)": lambda gain: without_candidates(gain, months, config=config, days=NIGHTS),
        "`yearly`: candidates, new tasks": lambda gain: with_candidates(gain, months, config=config, days=NIGHTS),
        "`yearly`: candidates, the same reserve": lambda gain: with_candidates(gain, months, False, config, NIGHTS),
        "`nightly`": lambda gain: without_candidates(gain, months, once["nightly"], days=NIGHTS),
        "`expected_loss`": lambda gain: without_candidates(gain, months, once["expected_loss"], days=NIGHTS),
    }


def table(found: Mapping[str, Any]) -> str:
    """Both parts as Markdown."""
    lines = ["| day | points | p at most | level before, verdict | level now, verdict |", "|---:|---:|---:|---|---|"]
    for row in found["stored month"]["nights"]:
        now = f"{row['level']:.4f}, {row['now']}" if "level" in row else row["now"]
        lines.append(f"| {row['day']} | {row['points']:+.1f} | {row['p']:.2g} | {row['old level']:.4f}, {row['old']} | {now} |")
    for name, rules in found["simulated"].items():
        lines += [
            "",
            f"{name}:",
            "",
            "| gate | world | point-days | promotions | false promotions | months with one | episodes |",
            "|---|---|---:|---:|---:|---:|---:|",
        ]
        lines += [
            f"| {rule} | {world} | {round(one['point_days'])} ± {one['point_days_error']:.1f} | {one['promotions']:.2f} | "
            f"{one['false_promotions_a_year']:.3f} | {one['years_with_a_false_promotion']:.1%} | {one['episodes']:.2f} |"
            for rule, worlds in rules.items()
            for world, one in worlds.items()
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--months", type=int, default=YEARS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    month = json.loads((RESULTS / "month.json").read_text())
    gates = {
        "The default gate (365 gates a year, confidence 0.95)": GateConfig(),
        "The gate of the stored month (30 gates, confidence 0.8)": GateConfig(**month["profile"]["gate"]),
    }
    found: dict[str, Any] = {"seed": SEED, "months": options.months, "stored month": of_the_month(month)}
    found["simulated"] = {
        name: {
            rule: {world: play(gain) for world, gain in (WORLDS | NULLS).items()}
            for rule, play in rules_of(config, options.months).items()
        }
        for name, config in gates.items()
    }
    (options.out / "gate_month.json").write_text(json.dumps(found, indent=2) + "\n")
    page = options.out / "month.md"
    before, after = page.read_text().split(BEGIN)[0], page.read_text().split(END)[1]
    page.write_text(before + BEGIN + table(found) + END + after)
    print(table(found))


if __name__ == "__main__":
    main()
