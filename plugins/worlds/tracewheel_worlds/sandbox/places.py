"""Places for runs: boxes beyond what the cores can serve would make honest runs time out, so a run waits for its place."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tracewheel import untimed

# Runs wait for files and processes much of their time, and an honest one meets its limits with a quarter of a core, too.
PLACES_PER_CORE = 4
LOOK_SECONDS = 1.0


class Places:
    """So many runs at once. Safe to use from several threads.

    >>> places = Places(1)
    >>> with places.one():
    ...     places.taken
    1
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._changed = threading.Condition()
        self._taken: dict[object, threading.Thread] = {}

    @property
    def taken(self) -> int:
        """How many runs have a place now."""
        return len(self._taken)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Wait for a place and keep it for the block. The wait counts for no time limit of the call that this thread does."""
        mine = object()
        try:
            with self._changed:
                if len(self._taken) >= self.count:
                    with untimed():
                        self._wait()
                self._taken[mine] = threading.current_thread()
            yield
        finally:
            with self._changed:
                self._taken.pop(mine, None)
                self._changed.notify()

    def _wait(self) -> None:
        while len(self._taken) >= self.count:
            # Not one long wait: a thread that is told to end hears it only between two steps of Python. One that was told so
            # just as it gave its place back may have kept it.
            self._changed.wait(LOOK_SECONDS)
            self._taken = {run: thread for run, thread in self._taken.items() if thread.is_alive()}


_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
_places = Places(PLACES_PER_CORE * _cores)


def places() -> Places:
    """Those of this process."""
    return _places


def _begin_anew() -> None:
    """In a forked process none of its parent's runs goes on, and a lock may be held by a thread that is not here."""
    global _places
    _places = Places(_places.count)


os.register_at_fork(after_in_child=_begin_anew)
