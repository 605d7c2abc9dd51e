"""The table of `roads.py`, from its cells."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import pandas as pd
from measuring import table
from methods import compared, figures_of, method_table


def page(known: dict[str, Any], start: str) -> str:
    """Success by seed, what it cost, the gate's verdicts, and each road minus the start and minus GRPO over the seeds."""
    by_road: dict[str, dict[str, Any]] = {}
    for seed, cells in known["cells"].items():
        for road, cell in cells.items():
            by_road.setdefault(road, {})[seed] = cell
    seeds = sorted(known["cells"], key=int)
    rows = []
    for road, cells in by_road.items():
        rates = {seed: success(cell) for seed, cell in cells.items()}
        verdicts = [cells[seed]["gate"]["verdict"] for seed in seeds if seed in cells and "gate" in cells[seed]]
        tokens, rounds, seconds = (fmean(cell[name] for cell in cells.values()) for name in ("tokens", "rounds", "cpu_s"))
        each = [f"{rates[seed]:.3f}" if seed in rates else "–" for seed in seeds]
        won = f"{verdicts.count('promoted')} of {len(verdicts)}" if verdicts else ""
        rows.append([road, *each, f"{fmean(rates.values()):.3f}", won, f"{tokens:,.0f}", f"{rounds:.0f}", f"{seconds:.0f}"])
    head = ["road", *(f"seed {seed}" for seed in seeds), "mean", "promoted", "sampled tokens", "rounds", "CPU s"]
    cell = next(iter(by_road[start].values()))
    asked = known["asked"]
    profile = f"--profile {asked['profile']} " if "profile" in asked else ""
    profile += "--lost " if asked.get("lost") else ""
    settings = f", with {' '.join(asked['settings'])}" if asked["settings"] else ""
    lines = [
        "# Roads to a better agent",
        "",
        f"Written by `python plugins/search/benchmarks/roads.py {profile}--tokens {asked['tokens']}`{settings}; it says how.",
        f"Success is the mean of greedy and sampled on {len(cell['tasks']['task_id'])} held-out tasks. `promoted`: seeds on",
        "which the gate promotes the road over its warm start, each verdict a comparison of its own.",
        "",
        table(head, rows).rstrip(),
    ]
    for base in (start, "GRPO"):
        differences = {}
        for road, cells in by_road.items():
            both = sorted(cells.keys() & by_road.get(base, {}).keys(), key=int)
            if road not in (base, start) and len(both) > 1:
                ours, theirs = ([by_road[name][seed] for seed in both] for name in (road, base))
                differences[f"{road} minus {base}"] = compared(outcomes(ours), outcomes(theirs))
        if differences:
            lines += [f"\nMinus {base}, in points:", "", method_table(differences)]
    return "\n".join(lines).rstrip() + "\n"


def outcomes(cells: list[dict[str, Any]]) -> list[pd.DataFrame]:
    """What each seed gave by task."""
    return [pd.DataFrame(cell["tasks"]) for cell in cells]


def success(cell: dict[str, Any]) -> float:
    """The mean of greedy and sampled success."""
    return float(figures_of(pd.DataFrame(cell["tasks"])).mean())
