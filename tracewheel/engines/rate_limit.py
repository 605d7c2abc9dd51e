"""Limits by the minute over many threads, and the response headers that say when an endpoint takes the next request."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from tracewheel.core.errors import InfrastructureError

MINUTE = 60.0


@dataclass
class Sent:
    """An admitted request: its time, and the tokens that it counts as."""

    at: float
    tokens: int


class RateLimiter:
    """Admits requests one by one, in the order they came.

    Invariant: any stretch of one `period` has at most `requests` requests, and at most `tokens` tokens in sum. A request
    of more tokens than the limit is admitted when nothing else was sent in the last period. Tokens are an estimate until
    `settle` corrects them.

    Args:
        requests, tokens: The limits; None for no limit.
        period: Seconds.
    """

    def __init__(self, requests: int | None = None, tokens: int | None = None, *, period: float = MINUTE) -> None:
        self._requests, self._tokens, self._period = requests, tokens, period
        self._sent: deque[Sent] = deque()
        self._not_before = 0.0
        self._closed = False
        self._next = threading.Lock()  # its holder is next; the others queue for it
        self._changed = threading.Condition()

    def acquire(self, tokens: int) -> Sent:
        """Wait until a request of so many tokens is admitted.

        Raises:
            InfrastructureError: the limiter was closed.
        """
        with self._next, self._changed:
            while (wait := self._wait(tokens)) > 0.0 and not self._closed:
                self._changed.wait(wait)
            if self._closed:
                raise InfrastructureError("the endpoint's client is closed")
            sent = Sent(time.monotonic(), tokens)
            self._sent.append(sent)
            return sent

    def settle(self, sent: Sent, tokens: int) -> None:
        """Correct a request's tokens."""
        with self._changed:
            sent.tokens = tokens
            self._changed.notify_all()

    def pause(self, seconds: float) -> None:
        """Admit nothing for so long."""
        with self._changed:
            self._not_before = max(self._not_before, time.monotonic() + seconds)
            self._changed.notify_all()

    def close(self) -> None:
        """Fail all waiting requests."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wait(self, tokens: int) -> float:
        """Seconds until a request of so many tokens is admitted; 0 for now."""
        now = time.monotonic()
        while self._sent and self._sent[0].at <= now - self._period:
            self._sent.popleft()
        free_at = self._not_before
        if self._requests is not None and len(self._sent) >= self._requests:
            free_at = max(free_at, self._sent[-self._requests].at + self._period)
        if self._tokens is not None:
            excess = sum(sent.tokens for sent in self._sent) + min(tokens, self._tokens) - self._tokens
            for sent in self._sent:
                if excess <= 0:
                    break
                excess -= sent.tokens
                free_at = max(free_at, sent.at + self._period)
        return max(0.0, free_at - now)


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
