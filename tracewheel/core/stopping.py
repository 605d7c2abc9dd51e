"""Ending a process's work at a safe point when a signal or a time limit asks for it.

A safe point is one where what is done is stored and nothing is half-written: the end of a stage. A stage that takes longer than
the grace is abandoned, which is safe, too: its output is placed only when it is whole. The grace is short because `docker stop`
kills after ten seconds, and a run's end has yet to be recorded then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

GRACE_SECONDS = 5.0
LAST_SECONDS = 25.0
# What sends a signal often sends it twice: to the process, and to its group.
SAME_SECONDS = 1.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Asks like SIGTERM, and is never taken for a second one: a parent's word to its child, which may have had SIGTERM already.
PARENTS_WORD = signal.SIGUSR1


@dataclass(frozen=True)
class Request:
    """Somebody asked the work to stop.

    Attributes:
        reason: As in "SIGTERM".
        exit_code: What the process ends with.
    """

    reason: str
    exit_code: int


class Stopped(BaseException):
    """The work has stopped because it was asked to. Not an `Exception`: nothing is tried again, and there is no fallback."""

    def __init__(self, request: Request, message: str = "") -> None:
        super().__init__(message or f"stopped ({request.reason}); the same command resumes from the last complete stage")
        self.request = request


class _Asked:
    """What was asked of this process."""

    def __init__(self) -> None:
        self.request: Request | None = None
        self.at = 0.0
        self.interrupting = False  # the grace is over: the next signal is ours
        self.raised = False  # `Stopped` is on its way up: nothing interrupts the clean-up
        self.over = threading.Event()  # nothing is left to stop


_asked = _Asked()
_handling = False


def requested() -> Request | None:
    """What was asked of this process, None for nothing."""
    return _asked.request


def handled() -> bool:
    """Whether a `stoppable` block is open."""
    return _handling


def check() -> None:
    """A safe point: end here if that was asked for.

    Raises:
        Stopped: it was. Other threads than the main one go on; they end with it.
    """
    if _asked.request and threading.current_thread() is threading.main_thread():
        _asked.raised = True
        raise Stopped(_asked.request)


@contextlib.contextmanager
def stoppable(
    say: Callable[[str], None] | None = None,
    *,
    grace: float = GRACE_SECONDS,
    last: float = LAST_SECONDS,
    until_exit: bool = False,
) -> Iterator[None]:
    """Have SIGTERM and SIGINT end the block at its next safe point (`check`), and at once the second time.

    Blocks may lie in one another: the inner one counts. In another thread than the main one nothing is handled.

    Args:
        say: Told what happens.
        grace: Seconds after which `Stopped` is raised wherever the main thread is; 0 raises at once.
        last: Seconds after which the process ends in any case, also when it does not come out of a library.
        until_exit: The process ends with the block, so `last` holds beyond it.

    Raises:
        Stopped: the block was ended.
    """
    global _asked, _handling
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    outermost = not _handling

    def handle(number: int, frame: FrameType | None) -> None:
        if _asked.interrupting:
            _asked.interrupting = False
            if not _asked.raised:
                check()
            return
        if _asked.request is None:
            name = "SIGTERM" if number == PARENTS_WORD else signal.Signals(number).name
            ask(name, 128 + (signal.SIGTERM if number == PARENTS_WORD else number), say, grace=grace, last=last)
            if not grace:
                check()
        elif number != PARENTS_WORD and time.monotonic() > _asked.at + SAME_SECONDS:
            _tell(say, "ended at once")
            os._exit(_asked.request.exit_code)

    if outermost:
        _asked = _Asked()
    _handling = True
    before = {number: signal.signal(number, handle) for number in (*SIGNALS, PARENTS_WORD)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _asked.raised = _asked.request is not None  # what follows is clean-up, too
        if outermost:
            _handling = False
            if not until_exit:
                _asked.over.set()
                _asked = _Asked()


def ask(
    reason: str,
    exit_code: int,
    say: Callable[[str], None] | None = None,
    *,
    grace: float = GRACE_SECONDS,
    last: float = LAST_SECONDS,
) -> None:
    """Ask the work within `stoppable` to stop; the first word counts."""
    asked = _asked
    if asked.request is not None:
        return
    asked.request, asked.at = Request(reason, exit_code), time.monotonic()

    def watch() -> None:
        if grace:  # said here, because a signal may come in the middle of a line that is being printed
            _tell(say, f"{reason}: stopping at the next safe point, within {grace:.0f} s; the same again ends at once")
        if not asked.over.wait(grace) and grace and asked is _asked and not asked.raised:
            asked.interrupting = True
            signal.pthread_kill(threading.main_thread().ident or 0, PARENTS_WORD)
        if not asked.over.wait(max(0.0, asked.at + last - time.monotonic())):
            _tell(say, f"{reason}: the clean-up took over {last - grace:.0f} s; ended without it")
            os._exit(exit_code)

    threading.Thread(target=watch, name="stopping", daemon=True).start()


def _tell(say: Callable[[str], None] | None, text: str) -> None:
    if say:
        say(text)
    else:
        print(f"tracewheel: {text}", file=sys.__stderr__, flush=True)
