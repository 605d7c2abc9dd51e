"""Processes that end with their parent, and ports for servers on this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable

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
