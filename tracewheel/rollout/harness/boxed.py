"""The first program in a box: passes connections on to the gateway, starts the agent, watches it, and ends with it.

It is run by its path, by an interpreter that knows nothing of Tracewheel: so it needs the standard library alone.
`python boxed.py PORT SOCKET MEGABYTES TASKS COMMAND...` listens on PORT of the box's own loopback, where the agent finds the
gateway under the address that it has outside, and passes what comes on to the Unix socket SOCKET. When it ends, the box does.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
import sys
import threading
import time

NOT_STARTED, OVER = 127, 125
LOOK_SECONDS = 0.1
CHUNK = 1 << 16
MEGABYTE = 1 << 20
PAGE = resource.getpagesize()


def start(command: list[str], most_tasks: int) -> int:
    """Fork, and become the agent there; returns its process."""
    child = os.fork()
    if child:
        return child
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    most = most_tasks if hard == resource.RLIM_INFINITY else min(most_tasks, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))  # binds none who started us as root: watched all the same
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error}\n".encode())
        os._exit(NOT_STARTED)


def pass_on(door: socket.socket, path: str) -> None:
    """Pass connections on, each in two threads."""
    while True:
        near, _ = door.accept()
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(path)
        except OSError:
            near.close()
            continue
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while part := source.recv(CHUNK):
            sink.sendall(part)
    for end, how in ((sink, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with contextlib.suppress(OSError):
            end.shutdown(how)


def excess(megabytes: int, most_tasks: int) -> str:
    """What the box has too much of now, "" for nothing. Pages that processes share count by their shares."""
    tasks, resident = 0, 0
    others = [name for name in os.listdir("/proc") if name.isdigit() and name not in ("1", str(os.getpid()))]
    for name in others:
        line = _read(f"/proc/{name}/stat")
        fields = line[line.rfind(")") + 2 :].split()
        if len(fields) > 21:
            tasks += int(fields[17])
            resident += int(fields[21]) * PAGE
    if tasks > most_tasks:
        return f"over {most_tasks} processes and threads"
    if resident > megabytes * MEGABYTE:
        shares = [re.search(r"^Pss:\s+(\d+) kB", _read(f"/proc/{name}/smaps_rollup"), re.MULTILINE) for name in others]
        if sum(int(share[1]) for share in shares if share) > megabytes << 10:
            return f"over {megabytes} MB of memory (rollout.harness.memory_mb)"
    return ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def main(port: str, path: str, megabytes: str, tasks: str, *command: str) -> int:
    """Returns the agent's exit code, or 128 and the signal that ended it."""
    door = socket.create_server(("127.0.0.1", int(port)), backlog=256)
    agent = start(list(command), int(tasks))  # a fork, so before there are threads
    threading.Thread(target=pass_on, args=(door, path), daemon=True).start()
    wait = 0.001  # a short one is not kept waiting
    while True:
        ended, status = os.waitpid(agent, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            if code >= 0:
                return code
            os.write(2, f"ended by {signal.Signals(-code).name}\n".encode())
            return 128 - code
        if wait == LOOK_SECONDS and (said := excess(int(megabytes), int(tasks))):
            os.write(2, f"{said}\n".encode())
            return OVER
        time.sleep(wait)
        wait = min(2 * wait, LOOK_SECONDS)


if __name__ == "__main__":
    os._exit(main(*sys.argv[1:]))
