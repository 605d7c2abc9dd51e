"""Charts as inline SVG without scripts: lines over iterations, columns, and small bars in rows.

Colours are classes of the style sheet, which has a light and a dark theme. Charts have text alternatives, and their points
tooltips; the numbers of a bar stand beside it as text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from tracewheel.dashboard.curves import Curve
from tracewheel.dashboard.text import seen
from tracewheel.report.results import Estimate

WIDTH, HEIGHT = 360, 190
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 10, 34
PLOT_RIGHT, PLOT_BOTTOM = WIDTH - RIGHT, HEIGHT - BOTTOM
TICKS = 4
POLICIES = ("deployed", "base", "warm_start", "warm_start_verified", "champion", "rl")
METER = '<svg class="meter" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true" focusable="false">{}</svg>'
TRACK = Markup('<rect class="track" x="0" y="0" width="100" height="12"/>')

Place = Callable[[float, float], tuple[float, float]]


def line_chart(curve: Curve) -> Markup:
    """Draw a curve: axes, a line and dots for each series, the intervals that it has, the marked iteration."""
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
        + _text(LEFT - 6, y + 3.5, number(tick), "end")
        for tick in y_ticks
        for y in (place(x_low, tick)[1],)
    ]
    parts += [_text(place(x, 0)[0], PLOT_BOTTOM + 15, str(x)) for x in integer_ticks(x_low, x_high)]
    parts.append(_text((LEFT + PLOT_RIGHT) / 2, HEIGHT - 4, curve.axis))
    if curve.marked is not None and x_low <= curve.marked <= x_high:
        line = '<line class="marked" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"><title>{3}</title></line>'
        tip = f"chosen: {curve.axis} {curve.marked}"
        parts.append(Markup(line).format(place(curve.marked, y_low)[0], TOP, PLOT_BOTTOM, tip))
    for index, label in enumerate(curve.series):
        bands = {x: (low, high) for x, low, high in curve.bands.get(label, ())}
        parts += [_band(bands, index, place)] if bands else []
        parts.append(_line(curve, label, index, place))
    return _svg(WIDTH, HEIGHT, describe(curve), parts)


def column_chart(counts: Sequence[tuple[str, int]], what: str, axis: str = "", says: str = "", *, wide: bool = False) -> Markup:
    """Columns in the order given, with a label at every few of them.

    Args:
        counts: Names and counts; at least one.
        what: What is counted.
        axis: What the names are.
        says: The text alternative; by default of the sum and the largest.
        wide: Over the whole page.
    """
    width, height = (720, 150) if wide else (WIDTH, 150)
    floor = height - (32 if axis else 22)
    most = max(count for _, count in counts) or 1
    step = (width - LEFT) / len(counts)
    every = -(-len(counts) // 7)
    column = '<rect class="column" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>'
    parts = [Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, width, floor, floor)]
    parts.append(_text(LEFT - 6, 12, f"{most:,}", "end"))
    for place, (name, count) in enumerate(counts):
        tall, x = (floor - 8) * count / most, LEFT + place * step
        tip = seen(f"{name} {axis}: {count:,} {what}" if axis else f"{name}: {count:,} {what}")
        parts.append(Markup(column).format(x + step * 0.1, floor - tall, max(1.0, step * 0.8), tall, tip))
        if place % every == 0:
            parts.append(_text(x + step / 2, floor + 14, seen(name.partition(" to ")[0][:16])))
    parts += [_text((LEFT + width) / 2, height - 3, axis)] if axis else []
    total = f"{sum(count for _, count in counts):,} {what} from {counts[0][0]} to {counts[-1][0]}; at most {most:,}"
    return _svg(width, height, seen(says or total), parts)


def histogram_chart(histogram: Mapping[str, Any], axis: str, what: str) -> Markup:
    """A `histogram` of the quality report as columns."""
    start, width = histogram["start"], histogram["width"]
    firsts = [start + place * width for place in range(len(histogram["counts"]))]
    names = [f"{first:,}" if width == 1 else f"{first:,} to {first + width - 1:,}" for first in firsts]
    least, median, ninth, most = (f"{histogram[name]:,}" for name in ("least", "median", "ninth_decile", "most"))
    says = f"{axis}: from {least} to {most}, median {median}, nine in ten up to {ninth}"
    return column_chart(list(zip(names, histogram["counts"], strict=True)), what, axis, says)


def rate_bar(rate: Estimate | None, policy: str = "") -> Markup:
    """A bar of a rate with its interval."""
    return interval_bar(rate.value, rate.low, rate.high, policy) if rate else Markup(METER).format(TRACK)


def interval_bar(value: float, low: float, high: float, policy: str = "") -> Markup:
    """The same of its numbers."""
    kind = policy if policy in POLICIES else "other"
    bar = Markup('<rect class="f-{}" x="0" y="1" width="{:.2f}" height="10"/>').format(kind, 100 * value)
    return Markup(METER).format(TRACK + bar + _whisker(100 * low, 100 * high))


def part_bar(part: float, whole: float) -> Markup:
    """A bar of a part of a whole."""
    share = min(100.0, 100 * part / whole) if whole else 0.0
    return Markup(METER).format(TRACK + Markup('<rect class="f-other" x="0" y="1" width="{:.2f}" height="10"/>').format(share))


def axis_of(values: Iterable[float | None]) -> tuple[float, float]:
    """An axis that holds zero and all values, with a margin."""
    known = [0.0, *(value for value in values if value is not None)]
    low, high = min(known), max(known)
    margin = 0.06 * (high - low) or 0.1
    return low - margin, high + margin


def difference_bar(value: float | None, ends: tuple[float, float] | None, axis: tuple[float, float]) -> Markup:
    """A bar from zero to a difference, with its interval."""
    low, high = axis

    def at(number: float) -> float:
        return 100 * (number - low) / (high - low)

    parts = Markup(TRACK)
    if value is not None:
        start, end = sorted((at(0.0), at(value)))
        parts += Markup('<rect class="{}" x="{:.2f}" y="1" width="{:.2f}" height="10"/>').format(
            "f-rise" if value >= 0 else "f-fall", start, end - start
        )
    if ends:
        parts += _whisker(at(ends[0]), at(ends[1]))
    return Markup(METER).format(parts + Markup('<path class="zero" d="M{0:.2f} 0V12"/>').format(at(0.0)))


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


def _svg(width: int, height: int, says: str, parts: Sequence[Markup]) -> Markup:
    box = '<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    return Markup(box).format(width, height, says, Markup("").join(parts))


def _text(x: float, y: float, words: str, anchor: str = "middle") -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, words)


def _whisker(low: float, high: float) -> Markup:
    return Markup('<path class="ends" d="M{0:.2f} 2V10M{0:.2f} 6H{1:.2f}M{1:.2f} 2V10"/>').format(low, high)


def _band(ends: Mapping[int, tuple[float, float]], index: int, place: Place) -> Markup:
    """The intervals of a series as an area; that of a single point as a line."""
    upper = [place(x, high) for x, (_, high) in sorted(ends.items())]
    lower = [place(x, low) for x, (low, _) in sorted(ends.items(), reverse=True)]
    path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in upper + lower) + " Z"
    return Markup('<path class="band s{}{}" d="{}"/>').format(index, " alone" if len(ends) == 1 else "", path)


def _line(curve: Curve, label: str, index: int, place: Place) -> Markup:
    """The line and the dots of a series, with a gap where a value is missing."""
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
