"""A limit on what is sent in a minute, for many threads at once."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

from tracewheel.core.errors import InfrastructureError

MINUTE = 60.0


@dataclass
class Sent:
    """A request that was let through: when, and how many tokens it counts as."""

    at: float
    tokens: int


class RateLimiter:
    """Lets requests through one by one, in the order they came.

    Invariant: in no stretch of a `period` are more than `requests` let through, nor more than `tokens` in sum, save for a
    request that is larger alone: it goes when nothing else was sent in the last period. Tokens are an estimate until
    `settle` puts them right.

    Args:
        requests, tokens: The limits; None for no limit.
        period: In seconds.
    """

    def __init__(self, requests: int | None = None, tokens: int | None = None, *, period: float = MINUTE) -> None:
        self._requests, self._tokens, self._period = requests, tokens, period
        self._sent: deque[Sent] = deque()
        self._not_before = 0.0
        self._closed = False
        self._door = threading.Lock()  # who holds it is next; the others queue up for it
        self._changed = threading.Condition()

    def acquire(self, tokens: int) -> Sent:
        """Wait until a request of so many tokens may go.

        Raises:
            InfrastructureError: the limiter was closed in the meantime.
        """
        with self._door, self._changed:
            while (wait := self._wait(tokens)) > 0.0 and not self._closed:
                self._changed.wait(wait)
            if self._closed:
                raise InfrastructureError("the endpoint is no longer asked")
            sent = Sent(time.monotonic(), tokens)
            self._sent.append(sent)
            return sent

    def settle(self, sent: Sent, tokens: int) -> None:
        """Say how many tokens a request really took."""
        with self._changed:
            sent.tokens = tokens
            self._changed.notify_all()

    def pause(self, seconds: float) -> None:
        """Let nothing through for so long, because the endpoint says so."""
        with self._changed:
            self._not_before = max(self._not_before, time.monotonic() + seconds)
            self._changed.notify_all()

    def close(self) -> None:
        """Turn away whoever waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wait(self, tokens: int) -> float:
        """How long a request of so many tokens has to wait from now; 0 when it may go."""
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
