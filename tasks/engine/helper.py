"""A second process of the flow, so that two stages can compute at once."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any

from tracewheel.core.errors import InfrastructureError
from tracewheel.core.processes import end_with_parent
from tracewheel.core.stopping import SIGNALS


class Helper:
    """Calls functions in a process that is kept between calls and ends when this one does.

    A process that dies is replaced at the next call.

    Args:
        variables: Environment variables that the process gets before it imports anything heavy.
    """

    def __init__(self, variables: dict[str, str] | None = None) -> None:
        self._variables = variables or {}
        self._pool: ProcessPoolExecutor | None = None
        self._closed = False

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What the function returns, or raises.

        Raises:
            InfrastructureError: the process died, or the helper is closed.
        """
        if self._closed:
            raise InfrastructureError("the helper process is closed")
        if self._pool is None:
            spawn = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, spawn, initializer=_begin, initargs=(os.getpid(), self._variables))
        try:
            return self._pool.submit(function, *args, **kwargs).result()
        except BrokenProcessPool as error:
            self._pool = None
            raise InfrastructureError(f"the process that was computing {function.__name__} died") from error

    def __enter__(self) -> Helper:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """End the process; when the block has failed, in the middle of its work."""
        self._closed, pool = True, self._pool
        if pool is None:
            return
        if kind is not None:
            for process in list((pool._processes or {}).values()):
                process.kill()
        pool.shutdown()


def _begin(parent: int, variables: dict[str, str]) -> None:
    os.environ.update(variables)
    for number in SIGNALS:  # they come to the whole group; the parent decides when this one ends
        signal.signal(number, signal.SIG_IGN)
    end_with_parent(parent)
