"""How far a stage is: its inner loops report, and whoever runs the stage may listen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How many of all units (such as episodes or steps) are done, and how many tokens that took."""

    done: int
    total: int
    unit: str
    tokens: int = 0


Listener = Callable[[Progress], None]
_listener: ContextVar[Listener | None] = ContextVar("progress", default=None)


def report(done: int, total: int, unit: str, tokens: int = 0) -> None:
    """Tell the listener of this context, if there is one."""
    if listener := _listener.get():
        listener(Progress(done, total, unit, tokens))


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Have a listener told during the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
