"""The time that decisions and records are made by: the present, or a moment of the past that is replayed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime

_simulated: datetime | None = None


def now() -> datetime:
    """The present in UTC, or the moment of the innermost `at`."""
    return _simulated or datetime.now(UTC)


def written() -> str:
    """`now` as records have it: ISO 8601 in UTC, to the second."""
    return now().isoformat(timespec="seconds")


def milliseconds() -> int:
    """`now` in milliseconds since 1970."""
    return int(now().timestamp() * 1000)


@contextlib.contextmanager
def at(moment: datetime) -> Iterator[None]:
    """Let the clock of this process stand still at a moment.

    Raises:
        ValueError: the moment has no zone.
    """
    global _simulated
    if moment.tzinfo is None:
        raise ValueError(f"{moment}: a moment of the clock needs a zone")
    before, _simulated = _simulated, moment.astimezone(UTC)
    try:
        yield
    finally:
        _simulated = before
