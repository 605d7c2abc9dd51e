"""What a backtest shows: as text, as JSON, and as a page with its plot."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from tracewheel.core.store import write_whole
from tracewheel.dashboard.backtest_chart import draw
from tracewheel.dashboard.files import page_file
from tracewheel.dashboard.view import render

FILES = {"result": "backtest.json", "costs": "costs.json", "plot": "backtest.svg", "page": "backtest.html"}
LEAST = 0.001
HEAD = (
    "branch", "point-days", "95% interval", "a day", "unrelated tasks", "promoted", "refused", "skipped", "failed", "days held",
    "false promotions", "hours", "tokens", "money", "hours a point",
)  # fmt: skip


def write_backtest(out: Path, result: Mapping[str, Any], costs: Mapping[str, Any]) -> dict[str, str]:
    """Write result, costs, plot and page into a folder; returns the files by kind.

    `backtest.json` and `backtest.svg` are equal for equal inputs; the costs hold seconds that were measured.
    """
    plot = draw(result)
    texts = {
        "result": json.dumps(result, indent=1) + "\n",
        "costs": json.dumps(costs, indent=1) + "\n",
        "plot": plot,
        "page": page(result, costs, plot),
    }
    for kind, text in texts.items():
        write_whole(out / FILES[kind], text)
    return {kind: str(out / name) for kind, name in FILES.items()}


def page(result: Mapping[str, Any], costs: Mapping[str, Any], plot: str) -> str:
    """One self-contained HTML page."""
    main = render(
        "backtest.html",
        result=result,
        head=HEAD,
        rows=[row_of(name, one, costs) for name, one in result["branches"].items()],
        headline=headline(result),
        sentences=sentences(result, costs),
        plot=Markup(plot),
        promotions=[(name, one) for name, branch in result["branches"].items() for one in branch["promotions"]],
        signed=points,
    )
    return page_file("Backtest", Markup(main), {name: name.capitalize() for name in ("plot", "branches", "promotions")})


def shown(result: Mapping[str, Any], costs: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """The result as text."""
    rows = [HEAD, *(row_of(name, one, costs) for name, one in result["branches"].items())]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEAD))]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([headline(result), "", *table, "", *sentences(result, costs), "", *files.values()])


def row_of(name: str, branch: Mapping[str, Any], costs: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of the table, in the order of `HEAD`."""
    area, runs, false = branch["points"], branch["runs"], branch["false_promotions"]
    total = costs["branches"][name]["total"]
    a_day, hours = area["a_day"], total["seconds"] / 3600
    return (
        name,
        points(area["points"]),
        f"{points(area['low'])} to {points(area['high'])}",
        "–" if a_day is None else f"{a_day:+.1f}",
        points(branch["points_unrelated"]["points"]),
        str(runs["promoted"]),
        str(runs["refused"]),
        str(runs["skipped"]),
        str(runs["failed"]),
        f"{branch['held']['days']:g}",
        _expected(false),
        f"{hours:.2f}",
        f"{total['tokens']:,}",
        "–" if total["money"] is None else f"{total['money']:.2f} {total['currency']}",
        f"{hours / a_day:.3f}" if a_day is not None and a_day > 0 else "–",
    )


def headline(result: Mapping[str, Any]) -> str:
    """The best branch, and whether that is certain."""
    found = result["comparison"]["all"]
    best, others = found["best"], found["differences"]
    area = result["branches"][best]["points"]
    gained = f"{points(area['points'])} point-days over the first policy ({points(area['low'])} to {points(area['high'])})"
    if not others:
        return f"{best}: {gained}"
    alike = [name for name, one in others.items() if _is_tie(one)]
    if len(alike) == len(others):
        return f"a tie of {_listed([best, *alike])}, equal on all tasks that count in both; {best}: {gained}"
    leader = f"{best} (a tie with {_listed(alike)})" if alike else best
    if open_ := [name for name, one in others.items() if one["low"] <= 0 and name not in alike]:
        return f"most points: {leader}, {gained}; not certainly more than {_listed(open_)}"
    return f"best: {leader}, {gained}; better than each other branch with 95% confidence"


def sentences(result: Mapping[str, Any], costs: Mapping[str, Any]) -> list[str]:
    """What the table does not say."""
    found, said = result["comparison"]["all"], []
    for name, one in found["differences"].items():
        interval = f"{points(one['low'])} to {points(one['high'])}"
        difference = f"{points(one['points'])} point-days ({interval}, all together 95%)"
        if not one["rows"]:
            difference = "unknown, no task counts in both"
        elif _is_tie(one):
            difference = f"0, equal on all {one['rows']} tasks of days that count in both"
        said.append(f"{found['best']} minus {name}: {difference}")
    unrelated = result["comparison"]["unrelated"]
    if unrelated["best"] != found["best"] and not _is_tie(unrelated["differences"][found["best"]]):
        said.append(f"on tasks that are not related to used ones, {unrelated['best']} has the most points")
    for name, branch in result["branches"].items():
        asked = branch["asked"]
        said.append(
            f"{name}: of {asked['all']} tasks of days, {asked['used_before']} had been trained or selected on before and do not"
            f" count; {asked['related_to_used']} are of users, sessions or copies of such, and count in the first figure only"
        )
        failed = [tick for tick in branch["ticks"] if tick["end"] == "failed"]
        for why in dict.fromkeys(tick["figures"]["why"] for tick in failed):
            said.append(f"{name}: {sum(tick['figures']['why'] == why for tick in failed)} runs failed: {why}")
        over = branch["over_first_champion"]
        if over and _is_tie(over):
            said.append(f"{name}: equal to its own first champion on all tasks since")
        elif over:
            interval = f"{points(over['low'])} to {points(over['high'])}"
            said.append(f"{name}: {points(over['points'])} point-days over its own first champion ({interval})")
    exam = result["exam"]
    left = ", ".join(f"{count} {reason}" for reason, count in exam["left_out"].items())
    said.append(f"exam: {exam['tasks']} tasks on {exam['days']} days" + (f"; left out: {left}" if left else ""))
    whole = costs["backtest"]["total"]
    said.append(
        f"the backtest itself: {whole['seconds'] / 3600:.2f} hours; {costs['shared']} results were those of another branch"
    )
    return said


def points(value: float) -> str:
    """Points with their sign."""
    return f"{value:+.0f}" if abs(value) >= 10 else f"{value:+.1f}"


def _expected(false: Mapping[str, Any]) -> str:
    """The expected number of false promotions."""
    if not false["judged"]:
        return "none to judge"
    known = f"{false['expected']:.2g} ± {false['deviation']:.2g}" if false["expected"] >= LEAST else f"under {LEAST:g}"
    return f"{known} of {false['judged']}"


def _is_tie(difference: Mapping[str, Any]) -> bool:
    """Whether two branches have the same success on all tasks that count in both; their points may differ by others."""
    return bool(difference["rows"]) and difference["low"] == difference["high"] == 0


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]
