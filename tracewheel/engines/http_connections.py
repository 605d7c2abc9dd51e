"""Connections for requests from many threads, each used by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx


class HttpConnections:
    """Lends clients, each with a connection of its own that stays open between requests.

    Threads that share one client of httpx can close each other's connection: a thread that looks for idle ones takes a
    fast answer on a connection that another thread has begun to use for the end of that connection.

    Args:
        make: Makes a client.
        most: How many requests run at once; a further one waits.
    """

    def __init__(self, make: Callable[[], httpx.Client], most: int) -> None:
        self._make = make
        self._running = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._all: list[httpx.Client] = []
        self._idle: list[httpx.Client] = []
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[httpx.Client]:
        """A client for one request.

        Raises:
            httpx.TransportError: the connections are closed.
        """
        with self._running:
            with self._lock:
                if self._closed:
                    raise httpx.TransportError("the connections are closed")
                if not self._idle:
                    self._all.append(self._make())
                    self._idle.append(self._all[-1])
                client = self._idle.pop()  # the last one used, so that the fewest connections stay open
            try:
                yield client
            finally:
                with self._lock:
                    self._idle.append(client)

    def close(self) -> None:
        """Close all connections; requests that wait or are under way fail."""
        with self._lock:
            self._closed = True
            for client in self._all:
                client.close()
