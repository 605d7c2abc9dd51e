"""Processes that end with their parent, and ports for servers on this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Generic, Self, TypeVar

WATCH_SECONDS = 0.5


def exit_at_once() -> None:
    """End this process without clean-up."""
    os._exit(1)


def terminate() -> None:
    """Send SIGTERM to this process, whose handler ends its children (torchrun has one)."""
    os.kill(os.getpid(), signal.SIGTERM)


def kill_group() -> None:
    """End this process and its group; for the leader of a group of its own (`start_new_session`)."""
    os.killpg(0, signal.SIGKILL)


def end_with_parent(parent: int, end: Callable[[], None] = exit_at_once) -> None:
    """End this process when its parent ends for any reason.

    A thread watches the parent's id. Linux could signal by itself (`PR_SET_PDEATHSIG`), but does so already when the
    parent's thread that started the child ends.

    Args:
        parent: The parent's process id, best as the parent itself passed it: it may have ended already.
        end: How to end.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        end()

    threading.Thread(target=watch, name="parent", daemon=True).start()


def end_with_spawner() -> None:
    """In a process that `multiprocessing` starts by spawning, end with its parent.

    For the top level of a program's main module: such a process imports that first, and heavier modules, for seconds, later.
    Elsewhere nothing happens.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        end_with_parent(os.getppid())


def free_port() -> int:
    """A TCP port of this machine that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_free_port(port: int) -> bool:
    """Whether a server could listen at a port of this machine; one in the wait after its last connections counts as free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


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
