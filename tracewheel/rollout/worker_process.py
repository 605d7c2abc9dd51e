"""A rollout worker as a process of its own: `python -m tracewheel.rollout.worker_process QUEUE PROFILE NAME PARENT`.

It ends with the process that started it, however that one ends.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from tracewheel.config import load_config
from tracewheel.core.errors import InputError, TracewheelError
from tracewheel.rollout.trajectory_queue import TrajectoryQueue

WATCH_SECONDS = 0.5
DONE, FAILED, BAD_INPUT = 0, 1, 2


def end_with(parent: int) -> None:
    """End this process, from a thread, when its parent is no longer the one of this id."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        os._exit(FAILED)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def main(queue: str, profile: str, name: str, parent: str) -> int:
    """Work until the queue says that the run has ended; returns the exit code."""
    end_with(int(parent))
    try:
        from tracewheel.rollout.worker import work

        work(TrajectoryQueue(Path(queue)), load_config(profile), name)
    except TracewheelError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return BAD_INPUT if isinstance(error, InputError) else FAILED
    return DONE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
