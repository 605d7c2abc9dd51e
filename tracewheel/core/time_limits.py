"""Time limits for code of the user: an environment or a verifier that hangs is given up, and its thread is left behind.

A thread cannot be killed. One that takes too long is told to end by an exception, which Python code receives at its next step,
so a loop ends. Code that blocks in C does not hear it: it keeps its thread, which dies with the process. When too many of
them hang, `TimeLimitError` ends the work.

`stage_limit` ends the thread that is in it, the same way, and the process when that does not end.
"""

from __future__ import annotations

import ctypes
import faulthandler
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from tracewheel.core.errors import TimeLimitError

MOST_HUNG = 16  # of the whole process
CHECK_SECONDS = 0.1
GRACE_SECONDS = 60.0
_hung: list[threading.Thread] = []
_hung_lock = threading.Lock()
_here = threading.local()  # `timer`: that of the job which a thread does


class _GivenUp(BaseException):
    """Raised in a thread that took too long; not an `Exception`, which the user's code may catch."""


class Timer:
    """What one user of the threads does now, since when, and how long it may take.

    Args:
        one: Seconds that one call may take; None without a limit.
        all_together: Seconds that all calls together may take; None without a limit.
        names: The settings of these two limits, for the message.
    """

    __slots__ = ("_all", "_doing", "_names", "_one", "_since", "_spent", "_stopped")

    def __init__(self, one: float | None, all_together: float | None = None, names: tuple[str, str] = ("", "")) -> None:
        self._one, self._all, self._names = one, all_together, names
        self._doing, self._since, self._spent = "", 0.0, 0.0
        self._stopped = False

    def begin(self, doing: str) -> None:
        """A call begins; it ends with `end`, or with the next call.

        Raises:
            TimeLimitError: the calls before it have taken all the time that there is.
        """
        now = time.monotonic()
        if self._doing:
            self._spent += now - self._since
        self._doing = ""
        if self._all is not None and self._spent > self._all:
            raise TimeLimitError(self._over(self._all, self._names[1], f"before {doing}"))
        self._since = now
        self._doing = doing  # last: another thread that sees it sees its time, too

    def end(self) -> None:
        """The call has ended."""
        if self._doing:
            self._spent += time.monotonic() - self._since
            self._doing = ""

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The time of the block does not count; one inside another is the outer's."""
        if self._stopped:
            yield
            return
        began, self._stopped = time.monotonic(), True
        try:
            yield
        finally:
            self._since += time.monotonic() - began
            self._stopped = False  # last, and asked for first: another thread that sees it sees the time put right, too

    def overdue(self, now: float) -> TimeLimitError | None:
        """Which limit the present call is over, None for neither; another thread may ask."""
        stopped, doing, taken = self._stopped, self._doing, now - self._since
        if stopped or not doing:
            return None
        if self._one is not None and taken > self._one:
            return TimeLimitError(self._over(self._one, self._names[0], doing))
        if self._all is not None and self._spent + taken > self._all:
            return TimeLimitError(self._over(self._all, self._names[1], f"at {doing}"))
        return None

    @staticmethod
    def _over(seconds: float, name: str, doing: str) -> str:
        return f"{doing}: over {seconds:g} s ({name})"


@dataclass(eq=False)
class Job:
    """Work to do in a thread, and what came of it: a `result`, or the `error` that it raised or was given up with.

    The work begins its calls on the timer itself, unless `doing` says that it is one call. `label` is the caller's.
    """

    work: Callable[[], Any]
    timer: Timer
    doing: str = ""
    label: Any = None
    result: Any = None
    error: BaseException | None = None


class _Thread:
    """A thread with the batch of jobs that it does, one after the other."""

    def __init__(self, owner: WatchedThreads, name: str) -> None:
        self._owner = owner
        self.lock = threading.Lock()
        self.job: Job | None = None
        self.left: deque[Job] = deque()
        self.given_up = False
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while (batch := self._owner.batches.get()) is not None:
                with self.lock:
                    self.left = deque(batch)
                while self._next():
                    self._do()
                if self.given_up:
                    return
                self._owner.batch_done.put(None)
                self._owner.notify()
        except _GivenUp:
            pass

    def _next(self) -> bool:
        with self.lock:
            self.job = None if self.given_up or not self.left else self.left.popleft()
            return self.job is not None

    def _do(self) -> None:
        job = self.job
        assert job is not None
        _here.timer = job.timer
        result, error = None, None
        try:
            if job.doing:
                job.timer.begin(job.doing)
            result = job.work()
        except _GivenUp:
            raise
        except BaseException as raised:  # whoever takes the job raises it again
            error = raised
        with self.lock:
            if not self.given_up:
                job.timer.end()
                self.job, job.result, job.error = None, result, error
                self._owner.finished.append(job)

    def give_up(self, job: Job, error: TimeLimitError) -> list[Job] | None:
        """Leave the thread to itself; returns the jobs of its batch that have not begun, None when the job has just ended."""
        with self.lock:
            if self.job is not job:
                return None
            self.given_up, job.error = True, error
            left, self.left = list(self.left), deque()
        assert self.thread.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.thread.ident), ctypes.py_object(_GivenUp))
        return left


class WatchedThreads:
    """Threads that do jobs in batches, and give up those that take too long.

    One thread calls the methods. A hand-over to a thread takes longer than a short job, so these go there in batches.

    Args:
        count: How many threads.
        name: The beginning of their names.
        notify: Called in one of them after each batch, for an owner who waits for more than these threads.
    """

    def __init__(self, count: int, name: str = "tool", notify: Callable[[], None] = lambda: None) -> None:
        self.notify = notify
        self.batches: SimpleQueue[list[Job] | None] = SimpleQueue()
        self.batch_done: SimpleQueue[None] = SimpleQueue()
        self.finished: deque[Job] = deque()
        self.given_up = 0
        self._name = name
        self._open = 0
        self._checked = time.monotonic()
        self._threads = [_Thread(self, name) for _ in range(count)]

    def submit(self, jobs: list[Job]) -> None:
        """Have a thread do these jobs in their order, when one is free."""
        self._open += 1
        self.batches.put(jobs)

    def done(self, seconds: float = 0.0, *, first: bool = False) -> list[Job]:
        """The jobs that have ended since the last call, in the order of their ends.

        Args:
            seconds: How long to wait for the open batches.
            first: Wait for one of them only.

        Raises:
            TimeLimitError: too many threads hang.
        """
        deadline = time.monotonic() + seconds
        while self._open:
            self._check()
            left = 0.0 if first and self.finished else deadline - time.monotonic()
            try:
                self.batch_done.get(timeout=max(0.0, min(left, CHECK_SECONDS)))
                self._open -= 1
            except Empty:
                if left <= 0:
                    break
        found = []
        while self.finished:
            found.append(self.finished.popleft())
        return found

    def run(self, jobs: list[Job]) -> None:
        """Do these jobs, each thread its share of them in their order, and wait for the last.

        Raises:
            TimeLimitError: too many threads hang.
        """
        count = len(self._threads)
        for place in range(count):
            if share := jobs[place::count]:
                self.submit(share)
        missing = len(jobs)
        while missing:
            missing -= len(self.done(CHECK_SECONDS))

    def close(self) -> None:
        """Let the threads end after the jobs that they are at; what hangs is not waited for."""
        while not self.batches.empty():
            self.batches.get()
        for _ in self._threads:
            self.batches.put(None)

    def _check(self) -> None:
        """Give up what takes too long."""
        now = time.monotonic()
        if now < self._checked + CHECK_SECONDS:
            return
        self._checked = now
        for place, thread in enumerate(self._threads):
            job = thread.job
            error = job.timer.overdue(now) if job else None
            if job is None or error is None or (left := thread.give_up(job, error)) is None:
                continue
            self.given_up += 1
            self._threads[place] = _Thread(self, self._name)
            self.finished.append(job)
            self.batches.put(left)  # an empty batch ends this one, too
            if (hung := _count_hung(thread.thread)) >= MOST_HUNG:
                raise TimeLimitError(f"{hung} calls hang in threads that do not end, the last: {error}")


def _count_hung(thread: threading.Thread) -> int:
    """How many threads hang, with this one."""
    with _hung_lock:
        _hung[:] = [other for other in _hung if other.is_alive()] + [thread]
        return len(_hung)


@contextmanager
def untimed() -> Iterator[None]:
    """The time of the block counts for no limit of the job that this thread does, where it does one.

    It waits for its turn, or for what has a limit of its own.
    """
    timer: Timer | None = getattr(_here, "timer", None)
    with timer.stopped() if timer else nullcontext():
        yield


@contextmanager
def stage_limit(seconds: float | None, what: str, grace: float = GRACE_SECONDS) -> Iterator[None]:
    """Raise `TimeLimitError` in this thread when the block takes longer.

    In the main thread a signal interrupts what waits in C, too. If the block does not end within the grace after that, the
    process prints where its threads are and ends: what is stored stays whole, and the next run continues from it.

    Args:
        seconds: How long; None without a limit.
        what: What takes so long, for the message.
        grace: Seconds from the limit to the end of the process.

    Raises:
        TimeLimitError: the block took longer.
    """
    if seconds is None:
        yield
        return
    message = f"{what}: over {seconds:g} s (stage_seconds); the same command continues from the last complete stage"
    if threading.current_thread() is not threading.main_thread():
        with _interrupted(seconds, message):
            yield
        return

    def over(*_: object) -> None:
        raise TimeLimitError(message)

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + grace, exit=True, file=sys.__stderr__ or 2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _interrupted(seconds: float, message: str) -> Iterator[None]:
    """`stage_limit` for another thread than the main one."""
    ident, lock, ended = threading.get_ident(), threading.Lock(), False

    def over() -> None:
        with lock:
            if not ended:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(_GivenUp))

    timer = threading.Timer(seconds, over)
    timer.daemon = True
    timer.start()
    try:
        yield
    except _GivenUp:
        raise TimeLimitError(message) from None
    finally:
        with lock:
            ended = True
        timer.cancel()
