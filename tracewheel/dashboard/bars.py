"""Small bars as SVG: a share with its interval, a signed difference on an axis of its own, a part of a whole."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from tracewheel.report.report_data import Estimate

KNOWN = ("deployed", "base", "warm_start", "warm_start_verified", "champion", "rl")
BOX = '<svg class="meter" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true" focusable="false">{}</svg>'
TRACK = Markup('<rect class="track" x="0" y="0" width="100" height="12"/>')


def colour(policy: str) -> str:
    """The class of a policy's colour."""
    return f"f-{policy}" if policy in KNOWN else "f-other"


def rate_bar(rate: Estimate | None, policy: str) -> Markup:
    """A bar of a rate with its interval; the numbers stand beside it as text."""
    if rate is None:
        return Markup(BOX).format(TRACK)
    bar = Markup('<rect class="{}" x="0" y="1" width="{:.2f}" height="10"/>').format(colour(policy), 100 * rate.value)
    return Markup(BOX).format(TRACK + bar + _whisker(100 * rate.low, 100 * rate.high))


def part_bar(part: float, whole: float) -> Markup:
    """A bar of a part of a whole."""
    share = min(100.0, 100 * part / whole) if whole else 0.0
    return Markup(BOX).format(TRACK + Markup('<rect class="f-other" x="0" y="1" width="{:.2f}" height="10"/>').format(share))


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
    return Markup(BOX).format(parts + Markup('<path class="zero" d="M{0:.2f} 0V12"/>').format(at(0.0)))


def _whisker(low: float, high: float) -> Markup:
    return Markup('<path class="ends" d="M{0:.2f} 2V10M{0:.2f} 6H{1:.2f}M{1:.2f} 2V10"/>').format(low, high)
