"""Limits by the minute over many threads."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass

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
