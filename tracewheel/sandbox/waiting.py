"""Boxes that wait for their run: a keeper, one for each of our processes, starts them while we do other things.

It is a process of its own: a box ends with the thread that started it, and so needs none of ours, and our descriptors and forks
know no waiting box. It ends with us, and its boxes with it. Whatever fails here, the run starts a box itself.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time

from tracewheel.sandbox import keeper
from tracewheel.sandbox.keeper import LONGEST_REQUEST, Box

ANSWER_SECONDS = 0.5
# A keeper that ends at once is not started again and again.
RESTART_SECONDS = 10.0
MOST_KNOWN = 16


class Waiting:
    """The keeper of this process, if there is one. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self._number = 0
        self._known: set[bytes] = set()
        self._began = -RESTART_SECONDS

    def take(self, recipe: bytes) -> Box | None:
        """A waiting box, or None where there is none; it may have died meanwhile."""
        if not self._lock.acquire(timeout=ANSWER_SECONDS):
            return None
        try:
            return self._ask(recipe) if recipe in self._known else None
        finally:
            self._lock.release()

    def prepare(self, recipe: bytes) -> None:
        """Have boxes waiting for the next run; a keeper is started where there is none."""
        if len(recipe) > LONGEST_REQUEST // 2 or not self._lock.acquire(timeout=ANSWER_SECONDS):
            return
        try:
            if self._requests is None and not self._start():
                return
            if recipe not in self._known:
                self._known = {*self._known, recipe} if len(self._known) < MOST_KNOWN else {recipe}
                self._send(b"0", recipe)  # its answer is left unread, as nobody waits for a number 0
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the keeper and its boxes, in a few seconds at most."""
        if self._requests is not None:
            self._requests.close()
        if self._process is not None:
            try:
                self._process.wait(keeper.END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process = self._requests = None

    def forget(self) -> None:
        """In a forked process, leave the keeper to our parent."""
        if self._requests is not None:
            self._requests.close()
        if self._process is not None:
            self._process.returncode = 0  # not ours to wait for

    def _ask(self, recipe: bytes) -> Box | None:
        self._number += 1
        number = str(self._number).encode()
        if not self._send(number, recipe):
            return None
        end = time.monotonic() + ANSWER_SECONDS
        while self._requests is not None and (left := end - time.monotonic()) > 0:
            self._requests.settimeout(left)
            try:
                said, descriptors, _, _ = socket.recv_fds(
                    self._requests, len(number) + 1, len(Box._fields), socket.MSG_CMSG_CLOEXEC
                )
            except TimeoutError:
                return None
            except OSError:
                said, descriptors = b"", []
            if said == number:
                return Box(*descriptors) if len(descriptors) == len(Box._fields) else None
            for descriptor in descriptors:  # the answer to one who no longer waited
                os.close(descriptor)
            if not said:
                self._drop()
        return None

    def _send(self, number: bytes, recipe: bytes) -> bool:
        if self._requests is None:
            return False
        try:
            self._requests.settimeout(ANSWER_SECONDS)
            self._requests.send(number + b"\n" + recipe)
        except TimeoutError:
            return False
        except OSError:
            self._drop()
            return False
        return True

    def _start(self) -> bool:
        if time.monotonic() - self._began < RESTART_SECONDS:
            return False
        self._began = time.monotonic()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                # Without our variables: it needs none, and its boxes must not see any.
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", os.path.abspath(keeper.__file__), str(os.getpid())],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={},
                    cwd="/",
                    start_new_session=True,
                )
            except OSError:
                ours.close()
                return False
        self._requests = ours
        return True

    def _drop(self) -> None:
        """The keeper ended, for want of work most likely."""
        if self._requests is not None:
            self._requests.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(ANSWER_SECONDS)
        self._requests = self._process = None
        self._known = set()


_waiting = Waiting()


def waiting() -> Waiting:
    """That of this process."""
    return _waiting


def _begin_anew() -> None:
    """In a forked process; its parent's lock may be held by a thread that is not here."""
    global _waiting
    _waiting.forget()
    _waiting = Waiting()


os.register_at_fork(after_in_child=_begin_anew)
atexit.register(lambda: _waiting.close())
