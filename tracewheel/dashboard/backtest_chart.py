"""The plot of a backtest, as an SVG that needs no style sheet: points gained so far, and how each scheduled run ended."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from markupsafe import Markup

from tracewheel.dashboard.charts import integer_ticks, nice_ticks, number

WIDTH, LEFT, RIGHT, TOP, UPPER, ROW, FOOT = 860, 190, 24, 34, 270, 22, 58
COLOURS = ("#35699a", "#d2491c", "#4d9a8a", "#7b5ea7", "#a07a16", "#5d7286")
DASHES = ("", "6 3", "2 3")
PALEST = 0.35
MARKS = {"promoted": "#14713d", "refused": "#98a1ae", "skipped": "#c9d0d8", "held": "#a32018", "failed": "#d2491c"}
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1c2430}.soft{fill:#5b6675;font-size:11px}.grid{stroke:#dde2e9}.line{fill:none}"
)


def draw(result: Mapping[str, Any]) -> str:
    """The SVG of a backtest's result."""
    branches: dict[str, Any] = result["branches"]
    days = _days(result["window"])
    bottom = TOP + UPPER
    height = bottom + 46 + ROW * len(branches) + FOOT
    cadences = list(dict.fromkeys(branch["cadence"] for branch in branches.values()))
    gates = list(dict.fromkeys(str(branch["gate"]) for branch in branches.values()))
    looks = {
        name: Markup('stroke="{}" {}').format(
            COLOURS[cadences.index(one["cadence"]) % len(COLOURS)], _stroke(gates.index(str(one["gate"])), len(gates))
        )
        for name, one in branches.items()
    }
    sums = {name: _sums(one["days"], days) for name, one in branches.items()}
    values = [0.0, *itertools.chain.from_iterable(sums.values())]
    ticks = nice_ticks(min(values), max(max(values), min(values) + 1.0))
    low, high = min(ticks[0], min(values)), max(ticks[-1], max(values))

    def across(day: float) -> float:
        return LEFT + day / max(1, len(days)) * (WIDTH - LEFT - RIGHT)

    def up(value: float) -> float:
        return bottom - (value - low) / (high - low) * UPPER

    parts = [
        Markup('<text x="{}" y="18">Points gained over the first policy, added up over the days (point-days)</text>').format(
            LEFT
        )
    ]
    for tick in ticks:
        parts.append(
            Markup(
                '<line class="grid" x1="{}" x2="{}" y1="{y:.1f}" y2="{y:.1f}"/>'
                '<text class="soft" x="{}" y="{:.1f}" text-anchor="end">{}</text>'
            ).format(LEFT, WIDTH - RIGHT, LEFT - 6, up(tick) + 4, number(tick), y=up(tick))
        )
    for name, values_of in sums.items():
        path = " ".join(f"{across(place):.1f},{up(value):.1f}" for place, value in enumerate(values_of))
        parts.append(
            Markup('<polyline class="line" {} points="{}"><title>{}</title></polyline>').format(
                looks[name], path, f"{name}: {values_of[-1]:.0f} point-days"
            )
        )
    for row, (name, branch) in enumerate(branches.items()):
        y = bottom + 46 + ROW * row
        parts.append(
            Markup('<line x1="8" x2="36" y1="{y}" y2="{y}" {}/><text x="42" y="{:.1f}">{}</text>').format(
                looks[name], y + 4, name, y=y
            )
        )
        parts += [_mark(tick, across(_place(tick["at"], days)), y) for tick in branch["ticks"]]
    for place in integer_ticks(0, len(days) - 1):
        parts.append(
            Markup('<text class="soft" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
                across(place), bottom + 18, days[place][5:]
            )
        )
    parts.append(_legend(height - 22))
    title = f"Backtest from {days[0]} to {days[-1]}: " + "; ".join(
        f"{name} {one['points']['points']:.0f} point-days" for name, one in branches.items()
    )
    return str(
        Markup(
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}"'
            ' role="img" aria-label="{2}">'
            '<style>{3}</style><rect width="{0}" height="{1}" fill="#fff"/>{4}</svg>\n'
        ).format(WIDTH, height, title, Markup(STYLE), Markup("").join(parts))
    )


def _stroke(gate: int, gates: int) -> Markup:
    """How the lines of a gate are drawn. Those of two gates often coincide: earlier ones are wide and pale, and lie below."""
    above = gates - 1 - gate
    opacity = 1.0 if not above else PALEST + (1.0 - PALEST) * gate / gates
    return Markup('stroke-width="{}" stroke-opacity="{:.2f}" stroke-dasharray="{}"').format(
        2 + 4 * above, opacity, DASHES[gate % len(DASHES)]
    )


def _mark(tick: Mapping[str, Any], x: float, y: float) -> Markup:
    """How a scheduled run ended, in a red frame where it held a batch."""
    kind = tick["end"]
    tip = f"{tick['at'][:16]}: {kind}" + (", a batch is held" if tick["held"] else "")
    if kind == "promoted":
        shape = Markup('<path d="M{:.1f} {:.1f} l6 11 h-12 z" fill="{}"/>').format(x, y - 6, MARKS[kind])
    else:
        size = 2.5 if kind == "skipped" else 4
        shape = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="{}" fill="{}"/>').format(x, y, size, MARKS.get(kind, "#c9d0d8"))
    if tick["held"]:
        shape += Markup('<rect x="{:.1f}" y="{:.1f}" width="16" height="16" fill="none" stroke="{}" stroke-width="2"/>').format(
            x - 8, y - 8, MARKS["held"]
        )
    return Markup("<g><title>{}</title>{}</g>").format(tip, shape)


def _legend(y: float) -> Markup:
    """What the marks mean."""
    parts, x = [], float(LEFT)
    for kind in ("promoted", "refused", "skipped", "held", "failed"):
        tick = {"held": kind == "held", "end": "skipped" if kind == "held" else kind, "at": kind}
        parts.append(_mark(tick, x, y) + Markup('<text class="soft" x="{}" y="{}">{}</text>').format(x + 13, y + 4, kind))
        x += 96
    return Markup("").join(parts)


def _days(window: Mapping[str, Any]) -> list[str]:
    first = date.fromisoformat(window["from"]).toordinal()
    return [date.fromordinal(first + number).isoformat() for number in range(window["days"])]


def _sums(measured: Sequence[Mapping[str, Any]], days: Sequence[str]) -> list[float]:
    """Point-days gained before each day, and at the end."""
    gained = {one["day"]: 100.0 * (one["success"] - one["first"]) for one in measured if one["success"] is not None}
    return list(itertools.accumulate((gained.get(day, 0.0) for day in days), initial=0.0))


def _place(at: str, days: Sequence[str]) -> float:
    """A moment in days since the begin of the first one, as the plot counts them (in UTC)."""
    day = date.fromisoformat(at[:10]).toordinal() - date.fromisoformat(days[0]).toordinal()
    return max(0.0, day + (int(at[11:13]) + int(at[14:16]) / 60) / 24)
