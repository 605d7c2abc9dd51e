"""Response headers that say when an endpoint takes the next request."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a response asks to wait (RFC 9110, section 10.2.3: seconds or a date), None without the header.

    A date is compared with the server's own clock if the response has its time.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000.0
    text = headers.get("retry-after")
    if text is None:
        return None
    seconds = _number(text)
    if seconds is not None:
        return max(0.0, seconds)
    when, now = _date(text), _date(headers.get("date"))
    return None if when is None else max(0.0, when - (time.time() if now is None else now))


def exhausted_for(headers: Mapping[str, str], tokens: int) -> float:
    """Seconds until every `x-ratelimit-*` limit without room for a request of `tokens` is reset; 0 if all have room."""
    waits = [0.0]
    for kind, need in (("requests", 1.0), ("tokens", float(tokens))):
        remaining, limit = (_number(headers.get(f"x-ratelimit-{name}-{kind}")) for name in ("remaining", "limit"))
        reset = duration(headers.get(f"x-ratelimit-reset-{kind}"))
        if remaining is not None and reset is not None and remaining < min(need, limit or need):
            waits.append(reset)
    return max(waits)


def duration(text: str | None) -> float | None:
    """The seconds of a text like `20ms`, `6m0s` or `1.5`; None if it is invalid."""
    if text is None:
        return None
    plain = _number(text)
    if plain is not None:
        return plain
    parts = PART.findall(text.strip())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip():
        return None
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None and text.strip()[:1].isdigit() else None
    except ValueError:
        return None


def _date(text: str | None) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, TypeError):
        return None
