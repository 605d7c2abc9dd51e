"""Connections that are not kept open for nothing: a request is whole in time, and those at rest make room for others."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)  # the process has other files, too
READ_AT_ONCE = 16 << 10  # bytes: a body in pieces of one byte is read in many short steps
LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
UNFINISHED = (h11.IDLE, h11.SEND_BODY)  # the client has not begun its request, or not ended it


class TimedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1, which itself waits without end for the rest of a request.

    Where more than `MOST` connections are open, one that waits for its client is closed: the one whose request has been
    unfinished for longest, else the one that has rested for longest since its last answer.
    """

    patience: ClassVar[float]  # seconds from a connection's or a request's beginning until the request is whole
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        transport.max_size = READ_AT_ONCE  # type: ignore[attr-defined]
        self._wait()
        if len(self.connections) > MOST:
            waiting = [each for each in self.connections if isinstance(each, TimedProtocol) and each.waits_until]
            min(waiting, key=lambda each: each.waits_until or (True, 0.0)).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on."""
        self._wait()
        super().data_received(data)
        if self.conn.their_state not in UNFINISHED:
            self._wait_no_more()

    def shutdown(self) -> None:
        """Close the connection as soon as nothing is being answered; nothing is waited for, whatever state it is in."""
        with contextlib.suppress(h11.LocalProtocolError):
            super().shutdown()
        if self.waits_until:
            self.transport.abort()

    @property
    def waits_until(self) -> tuple[bool, float] | None:
        """Whether it rests between two requests, and the time that it is closed at; None while a request is answered."""
        timer = self._deadline or self.timeout_keep_alive_task
        return None if timer is None else (self._deadline is None, timer.when())

    def _wait(self) -> None:
        self._deadline = self._deadline or self.loop.call_later(self.patience, self._give_up)

    def _wait_no_more(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.get_write_buffer_size():
            self.transport.write(LATE)
            self.transport.close()
        else:
            self.transport.abort()


def timed(patience: float) -> type[H11Protocol]:
    """The protocol of a server that waits for so many seconds."""
    return type("Timed", (TimedProtocol,), {"patience": patience})
