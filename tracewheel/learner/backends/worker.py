"""One process of several, of an update or a warm start: `python -m tracewheel.learner.backends.worker JOB`, under torchrun."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tracewheel.config import UpdateSections, WarmStartSections
from tracewheel.core.errors import TracewheelError
from tracewheel.core.files import read_json, write_json
from tracewheel.core.processes import end_with_parent
from tracewheel.learner.backends import processes
from tracewheel.learner.update import update
from tracewheel.learner.update_files import UpdateFiles
from tracewheel.learner.warm_start.stage import warm_start


def work(job: Path) -> int:
    """Run this process's part of the stage described by `job`; returns the exit code."""
    end_with_parent(os.getppid())
    task = read_json(job)
    try:
        if task["stage"] == "warm_start":
            config = WarmStartSections.model_validate(task["config"])
            warm_start(config, Path(task["curated"]), Path(task["out"]), task["demonstrations"])
        else:
            files = UpdateFiles.from_json(task["files"])
            update(UpdateSections.model_validate(task["config"]), files, iteration=task["iteration"])
    except TracewheelError as error:
        report = {"kind": type(error).__name__, "message": str(error)}
        write_json(job.parent / f"error-{processes.rank()}.json", report)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(work(Path(sys.argv[1])))
