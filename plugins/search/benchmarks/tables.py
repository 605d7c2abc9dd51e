"""The tables of `compare.py`, from its outcomes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))
from methods import difference_of

NAMES = {
    "groups": "pairs of whole episodes from groups",
    "group_turns": "pairs of turns from the same groups",
    "trees": "pairs of turns from trees",
    "trajectory": "one advantage an episode",
    "process_model": "turns credited by the process model",
}
FIRST = {"pairs": "groups", "credit": "trajectory"}
FIGURES = {"pairs": "held_out", "credit": "held_out_long"}
TITLES = {
    "pairs": "DPO on pairs from trees beside groups, all held-out tasks",
    "credit": "Credit of turns beside credit of episodes, GRPO without scale, held-out tasks of six turns or more",
}

CALIBRATIONS = {
    "process": "The process model on tasks that it was not fitted on",
    "process-long": "The same on tasks of six turns or more alone",
}


def write_table(outcomes: list[dict[str, Any]], out: Path) -> None:
    """Write what is known so far."""
    lines = ["# Search and process rewards on the tiny workspace", ""]
    lines += ["Written by `python plugins/search/benchmarks/compare.py table` from `outcomes.jsonl`.", ""]
    start = next((each for each in outcomes if each["study"] == "start"), None)
    for study, title in TITLES.items():
        own = [each for each in outcomes if each["study"] == study]
        if own:
            lines += _study(study, title, own, start)
    for each in outcomes:
        if each["study"] in CALIBRATIONS:
            lines += _calibration(each)
    out.write_text("\n".join(lines))


def _study(study: str, title: str, own: list[dict[str, Any]], start: dict[str, Any] | None) -> list[str]:
    seeds, figure = sorted({each["seed"] for each in own}), FIGURES[study]
    lines = [f"## {title}", "", "| arm | " + " | ".join(f"seed {seed}" for seed in seeds) + " | tokens | pairs | CPU seconds |"]
    lines += ["|---|" + "---:|" * (len(seeds) + 3)]
    if start:
        lines.append("| warm start | " + " | ".join(f"{start[figure]:.3f}" for _ in seeds) + " | | | |")
    by_arm: dict[str, dict[int, dict[str, Any]]] = {}
    for each in own:
        by_arm.setdefault(each["arm"], {})[each["seed"]] = each
    for arm, found in by_arm.items():
        cells = [f"{found[seed][figure]:.3f}" if seed in found else "–" for seed in seeds]
        pairs = sum(one.get("pairs", 0.0) for each in found.values() for one in each["rounds"]) / len(found)
        tokens, seconds = (np.mean([each[name] for each in found.values()]) for name in ("sampled_tokens", "cpu_seconds"))
        shown = f"{pairs:.0f}" if pairs else ""
        lines.append(f"| {NAMES[arm]} | " + " | ".join(cells) + f" | {tokens:,.0f} | {shown} | {seconds:.0f} |")
    lines += [""]
    first = by_arm.get(FIRST[study], {})
    for arm, found in by_arm.items():
        both = sorted(set(first) & set(found))
        if arm != FIRST[study] and len(both) > 1:
            told = difference_of([found[seed][figure] for seed in both], [first[seed][figure] for seed in both])
            needed = told.needed[5.0]
            lines.append(
                f"{NAMES[arm]} minus {NAMES[FIRST[study]]}, in points over {told.seeds} seeds: mean {told.mean:+.1f} "
                f"({told.interval[0]:+.1f} to {told.interval[1]:+.1f}); a claim of 5 points needs {needed} seeds."
            )
            lines.append("")
    return lines


def _calibration(found: dict[str, Any]) -> list[str]:
    lines = [
        f"## {CALIBRATIONS[found['study']]}",
        "",
        f"{found['steps']} steps of {found['tasks']} tasks ({found['tries']} tries), fitted on {found['fitted_tasks']} tasks; "
        f"{found['sampled_tokens']:,} tokens sampled for {found['continuations']} continuations.",
        "",
        "| after turns | steps | success | Brier | by turn alone | floor | ECE |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for turn, each in [("all", found), *sorted(found["by_turn"].items(), key=lambda one: int(one[0]))]:
        floor = "–" if each["brier_floor"] is None else f"{each['brier_floor']:.3f}"
        lines.append(
            f"| {turn} | {each['steps']} | {each['success']:.2f} | {each['brier']:.3f} | {each['brier_by_turn_alone']:.3f} | "
            f"{floor} | {each['ece']:.3f} |"
        )
    low, high = found["gain_interval"]
    return [*lines, "", f"Gain over the number of turns alone: {found['gain']:+.3f} Brier ({low:+.3f} to {high:+.3f}).", ""]
