"""Attending to a box from start to end: its output is read, its use is watched, and it is killed where it goes too far."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import time
from dataclasses import dataclass

from tracewheel import InfrastructureError
from tracewheel_worlds.sandbox.base import BoxFile, BoxRun, Finding, Limits
from tracewheel_worlds.sandbox.leftovers import Unreadable, files_left
from tracewheel_worlds.sandbox.starting import Box, fill
from tracewheel_worlds.sandbox.watch import Watch

SETUP_SECONDS = 30.0
# How long after a kill the box's processes may take to be gone.
END_SECONDS = 10.0
FIRST_LOOK = 0.005
PART = 65536
# Not epoll: of its watches a user has a fixed number, which boxes may use up.
WAITER = selectors.PollSelector
# The end of what a program says that could not get memory, or a process; one that goes on without is honest.
NO_MEMORY = (b"MemoryError", b"std::bad_alloc", b"Cannot allocate memory", b"memory exhausted", b"out of memory")
NO_PROCESS = (b"Cannot fork", b"can't start new thread", b"Resource temporarily unavailable")
SIGNALS = 64
KILLED = 128 + signal.SIGKILL


@dataclass(frozen=True)
class Given:
    """What a box is told: words for its shell, its standard input, and an archive of files."""

    order: bytes
    stdin: bytes
    files: bytes


def attend(box: Box, given: Given, limits: Limits, keep: bool, counted: str = "") -> BoxRun:
    """Let a box run and say what came of it; its descriptors are closed.

    Args:
        box: A box that was started.
        given: What it runs.
        limits: What it may use.
        keep: Whether to read the files it leaves.
        counted: The folder whose files' writes are counted.

    Raises:
        Blind: the box cannot be watched.
        InfrastructureError: the command did not begin, or somebody else ended the box.
    """
    with contextlib.ExitStack() as opened:
        opened.callback(box.close)
        opened.callback(_send_kill, box.process)
        talk = opened.enter_context(socket.socket(fileno=os.dup(box.talk)))
        talk.settimeout(SETUP_SECONDS)
        for descriptor, content in ((box.stdin, given.stdin), (box.order, given.order), (box.files, given.files)):
            fill(descriptor, content)
        status = bytearray()
        first = _first_process(box.status, status)
        # By descriptor: the number of a process that is gone is given to another. The box's second line, which comes later than
        # the descriptor, shows that it is the box's own.
        boxed = _descriptor(first)
        if boxed >= 0:
            opened.callback(os.close, boxed)
            opened.callback(_send_kill, boxed)
        watch = None
        if boxed >= 0 and _is_ready(talk) and _told(talk) and _is_ready(talk):
            with contextlib.suppress(OSError):
                watch = opened.enter_context(contextlib.closing(Watch(first, limits, counted)))
        if watch is None or _has_ended(boxed) or _has_ended(box.process):
            _kill(box, boxed)
            raise InfrastructureError(
                f"the box was not set up: {_complaint(box) or 'it ended, or may not be watched by this user'}"
            )
        return _Attendance(box, boxed, status, watch, limits).result(talk, keep)


class _Attendance:
    def __init__(self, box: Box, boxed: int, status: bytearray, watch: Watch, limits: Limits) -> None:
        self._box, self._boxed, self._status, self._watch, self._limits = box, boxed, status, watch, limits
        self._said = {box.stdout: bytearray(), box.stderr: bytearray()}
        self._findings: list[Finding] = []

    def result(self, talk: socket.socket, keep: bool) -> BoxRun:
        began = time.monotonic()
        _told(talk)
        self._follow(began)
        seconds = time.monotonic() - began
        stdout, stderr = (bytes(said) for said in self._said.values())
        killed = bool(self._findings)
        code = _exit_code(self._status)
        if code is None and not killed:
            raise InfrastructureError("somebody else ended the box while its command ran")
        code = KILLED if code is None else code
        self._judge(code, stderr)
        files: dict[str, BoxFile] = {}
        if keep and not killed:
            try:
                files = files_left(self._watch.folder, self._limits)
            except Unreadable as error:
                self._find(error.finding)
        if code > 128 and code <= 128 + SIGNALS:
            code = 128 - code
        return BoxRun(None if killed else code, stdout, stderr, tuple(self._findings), seconds, files, self._watch.writes())

    def _follow(self, began: float) -> None:
        """Until the box has ended and all it said is read."""
        end = began + self._limits.seconds
        look = began + FIRST_LOOK
        with WAITER() as selector:
            for descriptor in (self._box.status, *self._said):
                selector.register(descriptor, selectors.EVENT_READ)
            while selector.get_map():
                now = time.monotonic()
                if now >= end:
                    if self._findings:
                        return  # killed, and still something holds on
                    self._kill("timeout")
                    end = now + END_SECONDS
                elif now >= look and not self._findings:
                    finding, wait = self._watch.look()
                    look = time.monotonic() + max(wait if now - began > wait else FIRST_LOOK * 2, FIRST_LOOK)
                    if finding:
                        self._kill(finding)
                        end = now + END_SECONDS
                for key, _ in selector.select(max(min(end, look) - time.monotonic(), 0)):
                    if key.fd != self._box.status:
                        self._read(key.fd, selector)
                    elif part := os.read(key.fd, PART):
                        self._status += part
                    else:  # bubblewrap has ended
                        selector.unregister(key.fd)
                        end = time.monotonic() + END_SECONDS

    def _read(self, stream: int, selector: selectors.BaseSelector) -> None:
        part = os.read(stream, PART)
        if not part:
            selector.unregister(stream)
            return
        said = self._said[stream]
        room = self._limits.output_bytes - len(said)
        said += part[:room]
        if len(part) > room and not self._findings:
            self._kill("output")

    def _judge(self, code: int, stderr: bytes) -> None:
        """The findings that show at the end, of a box that was killed, too."""
        if self._watch.full() or code == 128 + signal.SIGXFSZ:
            self._find("disk")
        if code == 128 + signal.SIGXCPU:
            self._find("timeout")
        if code != 0 and any(words in stderr[-2048:] for words in NO_MEMORY):
            self._find("memory")
        if code != 0 and any(words in stderr[-2048:] for words in NO_PROCESS):
            self._find("processes")
        if self._watch.tried_to_escape() or code == 128 + signal.SIGSYS:
            self._find("escape")
        if self._watch.called_nobody():
            self._find("network")

    def _find(self, finding: Finding) -> None:
        if finding not in self._findings:
            self._findings.append(finding)

    def _kill(self, finding: Finding) -> None:
        self._find(finding)
        _kill(self._box, self._boxed)


def _first_process(status: int, said: bytearray) -> int:
    """The box's first process; 0 where bubblewrap ended before it had one."""
    end = time.monotonic() + SETUP_SECONDS
    while b"\n" not in said:
        if not _readable(status, end - time.monotonic()) or not (part := os.read(status, PART)):
            return 0
        said += part
    try:
        return int(json.loads(said.split(b"\n")[0])["child-pid"])
    except (ValueError, KeyError, TypeError):
        return 0


def _exit_code(said: bytearray) -> int | None:
    """The command's exit status, 128 more than the number of a signal; None where bubblewrap could not tell."""
    for line in reversed(said.splitlines()):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            return int(json.loads(line)["exit-code"])
    return None


def _descriptor(pid: int) -> int:
    if pid:
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return -1


def _readable(descriptor: int, seconds: float) -> bool:
    with WAITER() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(max(seconds, 0)))


def _has_ended(process: int) -> bool:
    return _readable(process, 0)


def _is_ready(talk: socket.socket) -> bool:
    try:
        return talk.recv(1) == b"\n"
    except OSError:
        return False


def _told(talk: socket.socket) -> bool:
    try:
        talk.sendall(b"\n")
    except OSError:
        return False
    return True


def _complaint(box: Box) -> str:
    """What bubblewrap or the shell said about why there is no box."""
    said = b""
    with contextlib.suppress(OSError):
        if _readable(box.stderr, END_SECONDS):
            said = os.read(box.stderr, PART)
    return said.decode(errors="replace").strip()


def _kill(box: Box, boxed: int) -> None:
    """Kill a box's first process, with which the kernel ends all its others, or bubblewrap where there is none yet."""
    if boxed < 0 or not _send_kill(boxed):
        _send_kill(box.process)


def _send_kill(process: int) -> bool:
    """Kill a process; one that has ended is left alone."""
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
    except OSError:
        return False
    return True
