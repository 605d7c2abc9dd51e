"""Ending a process's work at a safe point when a signal or a time limit asks for it.

A safe point is one where what is done is stored and nothing is half-written: the end of a stage. A stage that takes longer than
the grace is abandoned, which is safe, too: its output is placed only when it is whole. The grace is short because `docker stop`
kills after ten seconds, and a run's end has yet to be recorded then.

A process of ours listens from its start (`listen`) to its last moment: what is `done` is not stopped any more, and ends with
its own exit code.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from types import FrameType

GRACE_SECONDS = 5.0
LAST_SECONDS = 25.0
# What sends a signal often sends it twice: to the process, and to its group.
SAME_SECONDS = 1.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Asks like SIGTERM, and is never taken for a second one: a parent's word to its child, which may have had SIGTERM already.
PARENTS_WORD = signal.SIGUSR1
HEARD = (*SIGNALS, PARENTS_WORD)
Say = Callable[[str], None]


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
        self.done = False  # the work is complete: nothing stops it any more
        self.over = threading.Event()  # nothing is left to stop


_asked = _Asked()
_handling = False


def requested() -> Request | None:
    """What was asked of this process, None for nothing."""
    return _asked.request


def handled() -> bool:
    """Whether this process listens, or a `stoppable` block is open."""
    return _handling


def check() -> None:
    """A safe point: end here if that was asked for.

    Raises:
        Stopped: it was. Other threads than the main one go on; they end with it.
    """
    if _asked.request and not _asked.done and threading.current_thread() is threading.main_thread():
        _asked.raised = True
        raise Stopped(_asked.request)


def done() -> None:
    """The work is complete and recorded: whatever is asked from now on, it ends as what it is."""
    if _handling:
        _asked.done = True


def listen(say: Say | None = None, *, grace: float = 0.0, last: float = LAST_SECONDS) -> None:
    """Have SIGTERM and SIGINT end this process's work from now until the process ends; in another thread than the main one not.

    Before a block is `stoppable`, they raise `Stopped` after the grace, which is none by default. Signals that were `held_back`
    come now. The arguments are those of `stoppable`.
    """
    global _handling
    if threading.current_thread() is not threading.main_thread():
        return
    _handling = True
    # The interpreter gives signals their defaults back before its last clean-up, which takes seconds after an import of torch.
    atexit.register(_ignore)
    handle = _handler(say, grace, last)
    for number in HEARD:
        signal.signal(number, handle)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Have processes that are started in the block hear signals only when they `listen`; what comes before waits until then."""
    resource_tracker.ensure_running()  # `multiprocessing` lets signals through when it starts that
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def stoppable(say: Say | None = None, *, grace: float = GRACE_SECONDS, last: float = LAST_SECONDS) -> Iterator[None]:
    """Have SIGTERM and SIGINT end the block at its next safe point (`check`), and at once the second time.

    Blocks may lie in one another: the inner one counts. In another thread than the main one nothing is handled.

    Args:
        say: Told what happens.
        grace: Seconds after which `Stopped` is raised wherever the main thread is; 0 raises at once.
        last: Seconds after which the process ends in any case, also when it does not come out of a library.

    Raises:
        Stopped: the block was ended.
    """
    global _asked, _handling
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    outermost = not _handling
    if outermost:
        _asked = _Asked()
    _handling = True
    handle = _handler(say, grace, last)
    before = {number: signal.signal(number, handle) for number in HEARD}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _asked.raised = _asked.request is not None  # what follows is clean-up, too
        if outermost:
            _handling = False
            _asked.over.set()
            _asked = _Asked()


def ask(
    reason: str,
    exit_code: int,
    say: Say | None = None,
    *,
    grace: float = GRACE_SECONDS,
    last: float = LAST_SECONDS,
) -> None:
    """Ask the work to stop, as a signal does; the first word counts, and none that comes when the work is done."""
    if not _asked.done:
        _ask(Request(reason, exit_code), say, grace, last)


def _handler(say: Say | None, grace: float, last: float) -> Callable[[int, FrameType | None], None]:
    """What answers a signal."""

    def handle(number: int, frame: FrameType | None) -> None:
        if _asked.interrupting:
            _asked.interrupting = False
            if not _asked.raised:
                check()
            return
        if _asked.request is None:
            number = signal.SIGTERM if number == PARENTS_WORD else number
            _ask(Request(signal.Signals(number).name, 128 + number), say, grace, last)
            if not grace:
                check()
        elif number != PARENTS_WORD and time.monotonic() > _asked.at + SAME_SECONDS:
            _tell(say, "ended at once")
            os._exit(_asked.request.exit_code)

    return handle


def _ask(request: Request, say: Say | None, grace: float, last: float) -> None:
    asked = _asked
    if asked.request is not None:
        return
    asked.request, asked.at = request, time.monotonic()

    def watch() -> None:
        # Said here, because a signal may come in the middle of a line that is being printed.
        if asked.done:
            _tell(say, f"{request.reason}: there is nothing left to stop, and the process is ending")
        elif grace:
            _tell(say, f"{request.reason}: stopping at the next safe point, within {grace:.0f} s; the same again ends at once")
        if not asked.over.wait(grace) and grace and asked is _asked and not (asked.raised or asked.done):
            asked.interrupting = True
            signal.pthread_kill(threading.main_thread().ident or 0, PARENTS_WORD)
        if not asked.over.wait(max(0.0, asked.at + last - time.monotonic())):
            _tell(say, f"{request.reason}: the clean-up took over {last - grace:.0f} s; ended without it")
            os._exit(request.exit_code)

    threading.Thread(target=watch, name="stopping", daemon=True).start()


def _ignore() -> None:
    for number in HEARD:
        signal.signal(number, signal.SIG_IGN)


def _tell(say: Say | None, text: str) -> None:
    if say:
        say(text)
    else:  # past Python's buffer: a thread that holds its lock while the interpreter ends aborts the process
        with contextlib.suppress(OSError):
            os.write(2, f"tracewheel: {text}\n".encode())
