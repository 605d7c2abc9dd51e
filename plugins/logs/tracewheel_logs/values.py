"""Logged errors and times, as the readers need them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def failed_by(error: Any) -> str:
    """The mark of a call that ended with this error; "" without one."""
    if not error or (isinstance(error, dict) and not any(error.values())):
        return ""
    named = (
        next((error[key] for key in ("type", "code", "message") if error.get(key)), "") if isinstance(error, dict) else error
    )
    word = str(named).strip().partition("\n")[0]
    return f"failed: {word or 'error':.60}"


def time_text(nanoseconds: int | None) -> str | None:
    """A time in nanoseconds since 1970 as ISO 8601 text."""
    if nanoseconds is None:
        return None
    try:
        moment = datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds % 1_000_000_000 // 1000:06d}Z"
