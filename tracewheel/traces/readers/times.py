"""Times of logs as ISO 8601 text in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

USUAL = re.compile(r"[12]\d{3}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d(?:\.\d{1,6})?Z")
NUMBER = re.compile(r"\d{9,20}(?:\.\d+)?")
FRACTION = re.compile(r"(\.\d{6})\d+")
UNITS = ((10**11, 10**9), (10**14, 10**6), (10**17, 10**3), (10**20, 1))  # numbers below the first are this many nanoseconds
OLDEST, LATEST = 1990, 2100
ZONES = re.compile(r"\s*(?:UTC|GMT|Z)$", re.IGNORECASE)


def utc_time(value: Any) -> str | None:
    """A time as ISO 8601 text in UTC; None if it cannot be read.

    Read are ISO 8601 (a time without a zone counts as UTC), dates of mails and HTTP, and numbers since 1970 in seconds,
    milliseconds, microseconds or nanoseconds, which their size tells apart. A text that is UTC already stays as it is.
    Dates such as 04/08/2025 are not read: the log does not say which number is the month.
    """
    if isinstance(value, str):
        if USUAL.fullmatch(value) and _iso(value):
            return value
        value = value.strip()
        moment = _since_1970(value) if NUMBER.fullmatch(value) else _iso(value) or _mail(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        moment = _since_1970(value)
    elif isinstance(value, dict):
        return _of_database(value)
    else:
        moment = None
    if moment is None or not OLDEST <= moment.year < LATEST:
        return None
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def _since_1970(value: Any) -> datetime | None:
    number = float(value)
    for limit, nanoseconds in UNITS:
        if 10**8 <= number < limit:
            whole = int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdigit()) else None
            micros = whole * nanoseconds // 1000 if whole is not None else round(number * nanoseconds / 1000)
            return datetime.fromtimestamp(micros // 10**6, UTC).replace(microsecond=micros % 10**6)
    return None


def _iso(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(FRACTION.sub(r"\1", ZONES.sub("+00:00", text).replace("/", "-")))
    except ValueError:
        return None
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (OverflowError, ValueError):
        return None


def _mail(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _of_database(value: dict[str, Any]) -> str | None:
    """MongoDB's `$date`, and Firestore's and Protobuf's seconds and nanoseconds."""
    if len(value) == 1 and "$date" in value:
        inner = value["$date"]
        return utc_time(inner.get("$numberLong") if isinstance(inner, dict) else inner)
    seconds = next((value[key] for key in ("seconds", "_seconds") if isinstance(value.get(key), int)), None)
    if seconds is None or len(value) > 2:
        return None
    nanos = next((value[key] for key in ("nanos", "nanoseconds", "_nanoseconds") if isinstance(value.get(key), int)), 0)
    return utc_time(seconds * 10**9 + nanos)
