"""How values become text of a page. What a trace holds stays text: nothing in it can be run, hidden or turned around."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import orjson
from markupsafe import Markup

# Characters that a reader does not see, or that change the order of others: controls, marks of direction, halves of pairs.
_UNSEEN = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
    "|[\U000e0000-\U000e0fff]"
)
_HALVES = re.compile("[\ud800-\udfff]")
CUT = 20_000


def seen(text: str) -> str:
    """Text with each unseen character named: ⟦U+202E⟧; tabs and line ends stay."""
    return _UNSEEN.sub(lambda match: f"⟦U+{ord(match.group()):04X}⟧", text)


def value_of(text: str | bytes) -> Any:
    """The value of JSON, with halves of surrogate pairs named as `seen` does: JSON can hold them, and UTF-8 cannot.

    Raises:
        ValueError: it is no JSON, or nests too deeply.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            written = json.dumps(json.loads(text), ensure_ascii=False)
        except RecursionError as error:
            raise ValueError("it nests too deeply") from error
        return orjson.loads(_HALVES.sub(lambda match: f"⟦U+{ord(match.group()):04X}⟧", written))


def finalize(value: Any) -> Any:
    """What a template writes for a value, before it is escaped."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return "–"
    return seen(value) if isinstance(value, str) else value


def cut(text: str, most: int = CUT) -> str:
    """The beginning of a long text, and how much is left out."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most:,} more characters)"


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent."""
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:.{digits}f}%"


def points(value: float | None) -> str:
    """Percentage points with a sign."""
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:+.1f}".replace("-", "−")


def interval(ends: Any, signed: bool = False) -> str:
    """The two ends of an interval of shares."""
    if not ends or any(end is None for end in ends):
        return ""
    low, high = ends
    return f"{points(low)} to {points(high)}" if signed else f"{percent(low)} to {percent(high)}"


def duration(seconds: float | None) -> str:
    """A time that passed, in two units at most."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def thousands(value: float | None) -> str:
    """A whole number with separators."""
    return "–" if value is None else f"{round(value):,}"


def figure(value: Any) -> str:
    """A number with three significant digits; all else as text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return plain(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "–"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def plain(value: Any) -> str:
    """A value as text: strings unchanged, nothing as a dash, all else as JSON."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return pretty(value, indent=False)


def pretty(value: Any, indent: bool = True) -> str:
    """A value as JSON."""
    try:
        return orjson.dumps(
            value, default=str, option=(orjson.OPT_INDENT_2 if indent else 0) | orjson.OPT_NON_STR_KEYS
        ).decode()
    except TypeError:  # it nests too deeply, or holds what UTF-8 cannot
        return json.dumps(value, default=str, indent=2 if indent else None)


def moment(written: str | None) -> str:
    """A time of a record, in UTC to the minute."""
    if not written:
        return "–"
    try:
        return datetime.fromisoformat(written).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return written


def clock(seconds: float | None) -> str:
    """Seconds since 1970, in UTC to the minute."""
    return "–" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def visible(text: str) -> str:
    """The text of a token with signs for what leaves no mark."""
    return text.replace("\n", "⏎\n").replace("\t", "⇥").replace("\r", "␍")


FILTERS: Mapping[str, Any] = {
    one.__name__: one
    for one in (cut, percent, points, interval, duration, thousands, figure, plain, pretty, moment, clock, visible)
}
