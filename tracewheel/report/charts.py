"""Line charts as inline SVG. Colours come from the page's style sheet, which has a light and a dark theme."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from markupsafe import Markup

from tracewheel.report.report_data import Curve

WIDTH, HEIGHT = 360, 190
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 10, 34
PLOT_RIGHT, PLOT_BOTTOM = WIDTH - RIGHT, HEIGHT - BOTTOM
TICKS = 4

Place = Callable[[float, float], tuple[float, float]]


def line_chart(curve: Curve) -> Markup:
    """Draw a curve: axes, a line and dots for each series, the intervals that it has, the marked iteration.

    Dots have tooltips with their values; the chart has a text alternative.
    """
    measured = [(x, y) for points in curve.series.values() for x, y in points if y is not None and math.isfinite(y)]
    if not measured:
        return Markup("")
    x_low, x_high = min(x for x, _ in measured), max(x for x, _ in measured)
    ends = [end for band in curve.bands.values() for _, *both in band for end in both]
    y_low, y_high = curve.bounds or padded_range([*(y for _, y in measured), *ends])
    y_ticks = nice_ticks(y_low, y_high)
    y_low, y_high = min(y_low, y_ticks[0]), max(y_high, y_ticks[-1])

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low) if x_high > x_low else 0.5
        up = (min(max(y, y_low), y_high) - y_low) / (y_high - y_low)
        return LEFT + across * (PLOT_RIGHT - LEFT), PLOT_BOTTOM - up * (PLOT_BOTTOM - TOP)

    parts = [
        Markup('<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(LEFT, PLOT_RIGHT, y, y)
        + Markup('<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>').format(LEFT - 6, y + 3.5, number(tick))
        for tick in y_ticks
        for y in (place(x_low, tick)[1],)
    ]
    parts += [
        Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
            place(x, 0)[0], PLOT_BOTTOM + 15, x
        )
        for x in integer_ticks(x_low, x_high)
    ]
    middle = (LEFT + PLOT_RIGHT) / 2
    parts.append(
        Markup('<text class="axis" x="{}" y="{}" text-anchor="middle">{}</text>').format(middle, HEIGHT - 4, curve.axis)
    )
    if curve.marked is not None and x_low <= curve.marked <= x_high:
        x = place(curve.marked, y_low)[0]
        tip = f"chosen: {curve.axis} {curve.marked}"
        parts.append(
            Markup('<line class="marked" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"><title>{3}</title></line>').format(
                x, TOP, PLOT_BOTTOM, tip
            )
        )
    for index, label in enumerate(curve.series):
        bands = {x: (low, high) for x, low, high in curve.bands.get(label, ())}
        parts += [_band(bands, index, place)] if bands else []
        parts.append(_series(curve, label, index, place))
    return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, describe(curve), Markup("").join(parts)
    )


def _band(ends: Mapping[int, tuple[float, float]], index: int, place: Place) -> Markup:
    """The intervals of a series as an area; that of a single point as a line."""
    upper = [place(x, high) for x, (_, high) in sorted(ends.items())]
    lower = [place(x, low) for x, (low, _) in sorted(ends.items(), reverse=True)]
    path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in upper + lower) + " Z"
    return Markup('<path class="band s{}{}" d="{}"/>').format(index, " alone" if len(ends) == 1 else "", path)


def _series(curve: Curve, label: str, index: int, place: Place) -> Markup:
    stretches: list[list[tuple[float, float]]] = [[]]
    dots = []
    ends = {x: (low, high) for x, low, high in curve.bands.get(label, ())}
    for x, y in curve.series[label]:
        if y is None or not math.isfinite(y):
            stretches.append([])
            continue
        spot = place(x, y)
        stretches[-1].append(spot)
        tip = f"{label}, {curve.axis} {x}: {number(y)}" + (f" ({' to '.join(map(number, ends[x]))})" if x in ends else "")
        dot = Markup('<circle cx="{:.1f}" cy="{:.1f}" r="2.6"><title>{}</title></circle>').format(*spot, tip)
        dots.append(Markup('<a href="{}">{}</a>').format(curve.links[x], dot) if x in curve.links else dot)
    path = " ".join("M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in stretch) for stretch in stretches if stretch)
    return Markup('<g class="series s{}"><path d="{}"/>{}</g>').format(index, path, Markup("").join(dots))


def describe(curve: Curve) -> str:
    """A text alternative: first and last value of each series."""
    phrases = []
    for label, points in curve.series.items():
        measured = [(x, y) for x, y in points if y is not None]
        (first_x, first_y), (last_x, last_y) = measured[0], measured[-1]
        phrases.append(f"{label} from {number(first_y)} at {curve.axis} {first_x} to {number(last_y)} at {curve.axis} {last_x}")
    return f"{curve.title}: {'; '.join(phrases)}"


def number(value: float) -> str:
    """A number with three significant digits and no trailing zeros."""
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-4 else f"{value:.1e}"


def padded_range(values: Iterable[float]) -> tuple[float, float]:
    """A range that holds zero and all values, with 5% above the largest."""
    known = list(values)
    low, high = min(0.0, *known), max(0.0, *known)
    return (low, high * 1.05) if high > low else (low, low + 1.0)


def nice_ticks(low: float, high: float) -> list[float]:
    """About four round numbers from `low` to `high`."""
    rough = (high - low) / TICKS
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(m * magnitude for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * magnitude >= rough * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def integer_ticks(low: int, high: int) -> list[int]:
    """At most seven whole numbers, `low` among them."""
    step = max(1, math.ceil((high - low) / 6))
    return list(range(low, high + 1, step))
