"""Ends what a test run has started and left, however the run ended: also when pytest was killed and could tell nobody.

Whatever pytest starts inherits a mark in its environment. A small process of its own waits until pytest is gone, and then kills
all that bear the mark.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

MARK = "TRACEWHEEL_TEST_RUN"
LOOK_SECONDS = 0.5


def start():
    """Begin to watch this process; one that bears a mark is watched already, as a worker of pytest-xdist is."""
    if MARK in os.environ:
        return
    os.environ[MARK] = mark = uuid.uuid4().hex
    command = [sys.executable, "-S", __file__, str(os.getpid()), mark]
    nothing = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(command, start_new_session=True, cwd="/", **nothing)


def marked(mark):
    """The processes that bear a mark, this one aside."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes() and int(folder.name) != os.getpid():
                yield int(folder.name)


def watch(pytest, mark):
    while os.getppid() == pytest:
        time.sleep(LOOK_SECONDS)
    while left := list(marked(mark)):  # again, as one may have started another in between
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.1)


if __name__ == "__main__":
    watch(int(sys.argv[1]), sys.argv[2])
