"""A rollout worker as a process of its own: `python -m tracewheel.rollout.worker_process QUEUE PROFILE NAME PARENT`.

It ends with the process that started it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from tracewheel.config import WorkerSections
from tracewheel.core.errors import InputError, TracewheelError
from tracewheel.core.processes import end_with_parent
from tracewheel.rollout.trajectory_queue import TrajectoryQueue

DONE, FAILED, BAD_INPUT = 0, 1, 2


def main(queue: str, profile: str, name: str, parent: str) -> int:
    """Work until the run has ended; returns the exit code."""
    end_with_parent(int(parent))
    try:
        from tracewheel.rollout.worker import work

        config = WorkerSections.model_validate(yaml.safe_load(Path(profile).read_text()))
        work(TrajectoryQueue(Path(queue)), config, name)
    except TracewheelError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return BAD_INPUT if isinstance(error, InputError) else FAILED
    return DONE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
