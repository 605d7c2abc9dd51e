"""Starts programs, reaps them, and ends them with whoever asked: a small process that forks.

It is run by its path, and by the program's own interpreter where that preloads modules, which may know nothing of Tracewheel:
so it needs the standard library alone. `python launcher.py FD ROOT SETTINGS` reads orders from the socket FD, each a letter
and a number: `S` starts the program that `ROOT/<number>/start.json` describes, and comes with two file descriptors, its output
and its errors; `K` ends it. It answers with lines of JSON. At the end of the socket it ends every program that is left.

A program leads a process group of its own. When it ends, its group is killed before it is reaped: its id is still its own.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import traceback
from contextlib import suppress
from typing import Any, NoReturn

ORDER = struct.Struct("=cQ")
START, KILL = b"S", b"K"
NOT_STARTED = 127
INTERRUPTED = 130
FILTER = 3  # the descriptor of a box's filter
PR_SET_CHILD_SUBREAPER = 36
SWEEPS = 100  # how often what has left its group is looked for, at the end


def serve(orders: socket.socket, root: str) -> dict[str, Any] | None:
    """Carry out orders until the socket ends. Returns None then, and in a forked program what it is to run."""
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    running: dict[int, int] = {}  # pid to number
    _say(orders, {"ready": os.getpid()})
    while True:
        ready, _, _ = select.select([orders.fileno(), woken], [], [])
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, 4096)
        if orders.fileno() in ready:
            order, descriptors, _, _ = socket.recv_fds(orders, ORDER.size, 2)
            if not order:
                _end_all(running)
                return None
            kind, number = ORDER.unpack(order)
            if kind == START:
                start = _take(f"{root}/{number}/start.json")
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    orders.close()
                    os.close(woken)
                    os.close(wake)
                    return {**start, "descriptors": list(descriptors)}
                running[pid] = number
                _say(orders, {"started": number, "pid": pid})
                for descriptor in descriptors:
                    os.close(descriptor)
            elif kind == KILL:
                for pid in [pid for pid, own in running.items() if own == number]:
                    _kill_group(pid)
        for ended in _reap(running):
            _say(orders, ended)


def _reap(running: dict[int, int]) -> list[dict[str, Any]]:
    """What has ended: programs with their status and what they took; processes that outlived their program are forgotten."""
    ended: list[dict[str, Any]] = []
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return ended
        if found is None:
            return ended
        if found.si_pid in running:
            _kill_group(found.si_pid)
        _, status, took = os.wait4(found.si_pid, 0)
        if (number := running.pop(found.si_pid, None)) is not None:
            seconds = took.ru_utime + took.ru_stime
            ended.append({"ended": number, "status": status, "cpu_seconds": seconds, "peak_kilobytes": took.ru_maxrss})


def _end_all(running: dict[int, int]) -> None:
    """End every program, and what has left its group: on Linux that has become our child."""
    for pid in running:
        _kill_group(pid)
    for _ in range(SWEEPS):
        with suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children") as children:
            for pid in map(int, children.read().split()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _kill_group(leader: int) -> None:
    """Kill a program and its group; one that was forked just now may not lead a group yet."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(leader, signal.SIGKILL)


def run(start: dict[str, Any], forked: bool) -> NoReturn:
    """Become the program: a group of its own, its streams, folder, variables and limits."""
    os.setsid()
    given = os.open(start["stdin"] or os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate([given, *start["descriptors"]]):
        os.dup2(descriptor, number)
    for descriptor in {given, *start["descriptors"]} - {0, 1, 2}:
        os.close(descriptor)
    try:
        if start["filter"]:
            opened = os.open(start["filter"], os.O_RDONLY)
            os.dup2(opened, FILTER)
            os.set_inheritable(FILTER, True)
        if start["cwd"]:
            os.chdir(start["cwd"])
        if start["memory"]:
            resource.setrlimit(resource.RLIMIT_AS, (start["memory"], start["memory"]))
        if not forked:
            for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, other programs do not
                signal.signal(ignored, signal.SIG_DFL)
            os.execvpe(start["command"][0], start["command"], start["env"])
    except OSError as error:
        os.write(2, f"cannot start {start['command'][0]}: {error}\n".encode())
        os._exit(NOT_STARTED)
    os.environ.clear()
    os.environ.update(start["env"])
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, buffering=1, closefd=False, errors=errors)
        for number, mode, errors in ((0, "r", None), (1, "w", None), (2, "w", "backslashreplace"))
    )
    _finish(_run_python(start["command"][1:]))


def _run_python(words: list[str]) -> int:
    """Run a script or a module as an interpreter would; returns the exit code."""
    try:
        if words[0] == "-m":
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _finish(code: int) -> NoReturn:
    """End as an interpreter does, but leave out taking the modules down: they were only borrowed."""
    for step in (threading._shutdown, atexit._run_exitfuncs, sys.stdout.flush, sys.stderr.flush):  # type: ignore[attr-defined]
        try:
            step()
        except BaseException:
            traceback.print_exc()
    os._exit(code & 0xFF)


def _take(path: str) -> dict[str, Any]:
    """Read an order and remove it: it holds keys."""
    with open(path, encoding="utf-8") as file:
        read: dict[str, Any] = json.load(file)
    os.unlink(path)
    return read


def _say(orders: socket.socket, answer: dict[str, Any]) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        orders.sendall(json.dumps(answer).encode() + b"\n")


def main(descriptor: str, root: str, given: str) -> None:
    """Serve. `given`: as JSON, `preload` (modules) and `path` (the first place that modules are found in)."""
    settings = json.loads(given)
    orders = socket.socket(fileno=int(descriptor))
    orders.set_inheritable(False)
    with suppress(OSError, AttributeError):  # another system than Linux
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    sys.path[0] = settings["path"]
    try:
        for name in settings["preload"]:
            importlib.import_module(name)
    except BaseException as error:
        _say(orders, {"failed": f"{name}: {type(error).__name__}: {error}"})
        sys.exit(1)
    gc.collect()
    gc.freeze()  # what all programs share stays shared
    if (start := serve(orders, root)) is not None:
        run(start, forked=bool(settings["preload"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
