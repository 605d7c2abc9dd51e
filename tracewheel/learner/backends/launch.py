"""An update or a warm start on several processes: the commands and the flow start it when a profile asks for DeepSpeed.

`python -m tracewheel.learner.backends.launch` is torchrun, except that it ends when the process that started it does.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

import tracewheel.core.errors as errors
from tracewheel.config import DeepSpeedConfig, PassesConfig, UpdateSections, WarmStartSections
from tracewheel.core.errors import InfrastructureError, TracewheelError
from tracewheel.core.files import read_json, write_json
from tracewheel.core.processes import end_with_parent, terminate
from tracewheel.learner.update_files import UpdateFiles

LAST_LINES = 12
SECONDS_TO_END = 40


def update_by_processes(config: UpdateSections, files: UpdateFiles, *, iteration: int) -> dict[str, float]:
    """Run `update` on as many processes as the profile asks for; returns its metrics.

    Raises:
        TracewheelError: as `update`, from the first process that failed.
        InfrastructureError: a process was killed or crashed; the message ends with the last lines of its log.
    """
    job = update_job(config, files, iteration=iteration)
    return run_by_processes(job, config.learner, config.policy.device, files.out)


def warm_start_by_processes(config: WarmStartSections, curated: Path, out: Path, demonstrations: str) -> dict[str, float]:
    """Run `warm_start` on as many processes as the profile asks for; returns its metrics.

    Raises:
        TracewheelError: as `warm_start`, from the first process that failed.
        InfrastructureError: a process was killed or crashed; the message ends with the last lines of its log.
    """
    paths = {"curated": str(curated), "out": str(out)}
    job = {"stage": "warm_start", "config": config.model_dump(mode="json"), "demonstrations": demonstrations, **paths}
    return run_by_processes(job, config.warm_start, config.policy.device, out)


def update_job(config: UpdateSections, files: UpdateFiles, *, iteration: int) -> dict[str, Any]:
    """The arguments of an update, for `worker.work`."""
    return {"stage": "update", "config": config.model_dump(mode="json"), "files": files.to_json(), "iteration": iteration}


def run_by_processes(job: dict[str, Any], settings: PassesConfig, device: str, out: Path) -> dict[str, float]:
    """Run a job of `worker.work` on new processes; returns the metrics that it leaves in `out`.

    Raises:
        TracewheelError: from the first process that failed.
        InfrastructureError: a process was killed or crashed; the message ends with the last lines of its log.
    """
    with tempfile.TemporaryDirectory(prefix="tracewheel-update-") as folder:
        path = Path(folder) / "job.json"
        write_json(path, job)
        processes = number_of_processes(settings, device)
        _free_gpu_memory(device)
        with (Path(folder) / "log").open("w+") as log:
            code = _run([f"--nproc-per-node={processes}", "--module", "tracewheel.learner.backends.worker", str(path)], log)
            if code:
                log.seek(0)
                raise _failure(Path(folder), f"the {job['stage']} on {processes} processes", code, log.readlines())
    figures: dict[str, float] = read_json(out / "metrics.json")
    return figures


def number_of_processes(settings: PassesConfig, device: str) -> int:
    """The profile's number, or else one per GPU."""
    if isinstance(settings.backend, DeepSpeedConfig) and settings.backend.processes:
        return settings.backend.processes
    if device == "cpu":
        return 1
    import torch

    return max(1, torch.cuda.device_count())


def _free_gpu_memory(device: str) -> None:
    """Release the GPU memory that earlier stages of this process left in torch's cache."""
    if device == "cpu":
        return
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def _run(arguments: list[str], log: IO[str]) -> int:
    command = [sys.executable, "-m", "tracewheel.learner.backends.launch", "--standalone", *arguments]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
        return child.wait()
    except BaseException:
        # torchrun ends its workers when it is terminated, but not when it is killed.
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            child.kill()
        raise


def _failure(folder: Path, what: str, code: int, lines: list[str]) -> TracewheelError:
    for report in sorted(folder.glob("error-*.json")):
        known = read_json(report)
        kind = getattr(errors, known["kind"], InfrastructureError)
        raised: TracewheelError = kind(known["message"])
        return raised
    tail = "".join(lines[-LAST_LINES:]).strip() or "nothing"
    return InfrastructureError(f"{what} ended with exit code {code}; end of its log: {tail}")


if __name__ == "__main__":
    from torch.distributed.run import main

    end_with_parent(os.getppid(), terminate)
    main()
