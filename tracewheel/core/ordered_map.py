"""A function over many items in several processes, its results in the order of the items."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Generic, Self, TypeVar

from tracewheel.core.processes import end_with_parent

T = TypeVar("T")
R = TypeVar("R")


def usable_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Ready(Generic[R]):
    """A result among the items: it needs no work and keeps its place."""

    value: R


class OrderedMap:
    """Maps functions over items in processes that start when they are first needed and end with this one.

    They are new processes, not forks: libraries with threads do not survive a fork.

    Args:
        processes: How many; with 1 all work is done here.
    """

    def __init__(self, processes: int = 1) -> None:
        self.processes = processes
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def __call__(self, function: Callable[[T], R], items: Iterable[T | Ready[R]]) -> Iterator[R]:
        """The results in the order of the items. At most one item more than there are processes is read ahead.

        Args:
            function: A function of a module, so that other processes can import it.
            items: Its arguments; they and the results are sent between processes.
        """
        if self.processes == 1:
            yield from (item.value if isinstance(item, Ready) else function(item) for item in items)
            return
        waiting: deque[Future[R] | Ready[R]] = deque()
        for item in items:
            waiting.append(item if isinstance(item, Ready) else self._submitted(function, item))
            if len(waiting) > self.processes:
                yield _result(waiting.popleft())
        while waiting:
            yield _result(waiting.popleft())

    def _submitted(self, function: Callable[[T], R], item: T) -> Future[R]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.processes, mp_context=get_context("spawn"), initializer=end_with_parent, initargs=(os.getpid(),)
            )
        return self._pool.submit(function, item)


def _result(waiting: Future[R] | Ready[R]) -> R:
    return waiting.value if isinstance(waiting, Ready) else waiting.result()
