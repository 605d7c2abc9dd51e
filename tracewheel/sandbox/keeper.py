"""Boxes up to where their command begins, and a small process that keeps a few of them waiting.

`tracewheel/sandbox/waiting.py` runs this file as a program, so it imports nothing but the standard library.

A recipe is the JSON of bubblewrap's command line, in which a number stands for the descriptor of one of its texts. All else
about a run is told to the box when it begins.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import NamedTuple

SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
# Waits for its run, unpacks the files, sets the limits (within the box, so that only its own processes count), and waits for a
# look at the box. Then it becomes the command: nothing of ours is left in the box that a command could turn against us. It is
# bash, because descriptors of two digits are beyond a plain shell.
RUN = (
    "talk=$1 order=$2 files=$3; "
    "echo >&$talk; read -r -t 300 -u $talk || exit 125; mapfile -d '' -t -u $order words; "
    'if [ "${words[0]}" ]; then tar -xpf - -C /box <&$files || exit 125; fi; '
    "ulimit -c 0 -n 256 -i 1024 -f ${words[1]} -v ${words[2]} -t ${words[3]} -u ${words[4]} || exit 125; "
    "echo >&$talk; read -r -t 300 -u $talk || exit 125; exec {talk}>&- {order}<&- {files}<&-; "
    'exec -- "${words[@]:5}"'
)
RECIPES = 2  # boxes of the recipes asked for last are kept
BOXES = 2  # of each
IDLE_SECONDS = 60.0  # a recipe that nobody asks for is forgotten, and a keeper without any ends
TICK_SECONDS = 1.0
END_SECONDS = 5.0
LONGEST_REQUEST = 1 << 16


class Box(NamedTuple):
    """Descriptors of a box that waits for its run.

    Attributes:
        process: bubblewrap.
        talk: Where the box writes a line when it is ready, and waits for one: for its run first, then for its command's begin.
        status: What bubblewrap says about it (`--json-status-fd`), up to its end.
        stdout: What the command says.
        stderr: The same for errors.
        stdin: Memory to fill with what the command reads.
        order: Memory to fill with words that end in zero bytes: whether there are files, four limits, and the command.
        files: Memory to fill with an archive.
    """

    process: int
    talk: int
    status: int
    stdout: int
    stderr: int
    stdin: int
    order: int
    files: int

    def close(self) -> None:
        """Close all of them, which ends a box that waits."""
        for descriptor in self:
            os.close(descriptor)


def start_box(recipe: bytes) -> tuple[subprocess.Popen[bytes], Box]:
    """Start a box that waits for its run.

    Raises:
        OSError: bubblewrap did not start.
    """
    asked = json.loads(recipe)
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:

        def kept(descriptor: int, by: contextlib.ExitStack) -> int:
            by.callback(os.close, descriptor)
            return descriptor

        here, there = (end.detach() for end in socket.socketpair())
        talk, far_talk = kept(here, ours), kept(there, theirs)
        (status, tells), (stdout, says), (stderr, complains) = (
            (kept(here, ours), kept(there, theirs)) for here, there in (os.pipe() for _ in range(3))
        )
        stdin, order, files = (kept(memory(), ours) for _ in range(3))
        texts = [kept(memory(), theirs) for _ in asked["texts"]]
        for descriptor, text in zip(texts, asked["texts"], strict=True):
            fill(descriptor, text.encode("latin-1"))
        line = [part if isinstance(part, str) else str(texts[part]) for part in asked["line"]]
        line += ["--json-status-fd", str(tells), "--", "/bin/bash", "-c", RUN, "bash", str(far_talk), str(order), str(files)]
        process = subprocess.Popen(
            line,
            stdin=stdin,
            stdout=says,
            stderr=complains,
            env=asked["variables"],
            cwd="/",
            pass_fds=[far_talk, tells, order, files, *texts],
            start_new_session=True,
        )
        box = Box(os.pidfd_open(process.pid), talk, status, stdout, stderr, stdin, order, files)
        ours.pop_all()
        return process, box


def memory() -> int:
    """A descriptor of memory, to be filled once."""
    return os.memfd_create("box", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def fill(descriptor: int, content: bytes) -> None:
    """Fill memory and seal it, so that nobody can change it."""
    written = 0
    while written < len(content):
        written += os.pwrite(descriptor, memoryview(content)[written:], written)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)


class Keeper:
    """Starts boxes of the recipes asked for last, gives each away once, and ends those that nobody takes."""

    def __init__(self) -> None:
        self._boxes: dict[bytes, list[tuple[subprocess.Popen[bytes], Box]]] = {}  # the recipe asked for last is the last
        self._asked: dict[bytes, float] = {}
        self._given: list[subprocess.Popen[bytes]] = []

    def take(self, recipe: bytes) -> Box | None:
        """A box that waits, if there is one; from now on boxes of this recipe are kept."""
        boxes = self._boxes.pop(recipe, [])
        self._boxes[recipe], self._asked[recipe] = boxes, time.monotonic()
        while len(self._boxes) > RECIPES:
            self._forget(next(iter(self._boxes)))
        if not boxes:
            return None
        process, box = boxes.pop(0)
        self._given.append(process)
        return box

    def start_one(self) -> bool:
        """Start a box where one is missing, and say whether one was."""
        for recipe, boxes in self._boxes.items():
            if len(boxes) < BOXES:
                try:
                    boxes.append(start_box(recipe))
                except OSError:  # whoever asks for it next meets the error itself
                    self._forget(recipe)
                return True
        return False

    def tidy(self) -> bool:
        """Throw away what died or waits in vain, and say whether any box is left, one that was given away included."""
        self._given = [process for process in self._given if process.poll() is None]
        for recipe, boxes in [*self._boxes.items()]:
            if time.monotonic() - self._asked[recipe] > IDLE_SECONDS:
                self._forget(recipe)
                continue
            for process, box in boxes[:]:
                if process.poll() is not None:
                    boxes.remove((process, box))
                    box.close()
        return bool(self._boxes or self._given)

    def close(self) -> None:
        """End the boxes that wait."""
        for recipe in [*self._boxes]:
            self._forget(recipe)

    def _forget(self, recipe: bytes) -> None:
        del self._asked[recipe]
        for process, box in self._boxes.pop(recipe):
            # A box that is being set up has a second process, which nothing else would end.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            box.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)


def keep(owner: int, requests: socket.socket) -> None:
    """Answer requests, a number and a recipe each, until the owner is gone, closes them, or nothing is left to keep."""
    ended = os.pidfd_open(owner)
    if os.getppid() != owner:
        return
    requests.settimeout(END_SECONDS)
    poll = select.poll()
    for descriptor in (ended, requests.fileno()):
        poll.register(descriptor, select.POLLIN)
    with contextlib.closing(Keeper()) as keeper:
        missing, last = False, time.monotonic()
        while True:
            ready = [descriptor for descriptor, _ in poll.poll(0 if missing else TICK_SECONDS * 1000)]
            if ended in ready:
                return
            if ready:
                last = time.monotonic()
                number, _, recipe = requests.recv(LONGEST_REQUEST).partition(b"\n")
                if not recipe:
                    return
                box = keeper.take(recipe)
                socket.send_fds(requests, [number], box or [])
                if box:
                    for descriptor in box:
                        os.close(descriptor)
            if not keeper.tidy() and time.monotonic() - last > IDLE_SECONDS:
                return
            missing = bool(ready) or keeper.start_one()  # whoever asks comes before boxes for later


if __name__ == "__main__":
    with contextlib.suppress(OSError), socket.socket(fileno=0) as given:
        keep(int(sys.argv[1]), given)
