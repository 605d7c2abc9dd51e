"""An update on several processes, started from one: what `tracewheel update` and the flow do when a profile asks for DeepSpeed.

`python -m tracewheel.learner.launch` is torchrun that ends when the process that asked for it does.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import tracewheel.core.errors as errors
from tracewheel.config import DeepSpeedConfig, UpdateSections
from tracewheel.core.errors import InfrastructureError, TracewheelError
from tracewheel.core.files import read_json, write_json
from tracewheel.core.processes import end_with_parent, terminate

LAST_LINES = 12
SECONDS_TO_END = 40


def update_by_processes(
    config: UpdateSections,
    trajectories: Sequence[Path],
    scores: Sequence[Path],
    state: Path,
    reference: Path,
    out: Path,
    *,
    iteration: int,
) -> dict[str, float]:
    """Run `update` on the processes that the profile asks for; see there.

    Raises:
        TracewheelError: as `update`, whichever process met it first.
        InfrastructureError: a process was killed, or failed in a way of its own; the message ends with what it said.
    """
    with tempfile.TemporaryDirectory(prefix="tracewheel-update-") as folder:
        job = Path(folder) / "job.json"
        write_job(job, config, trajectories, scores, state, reference, out, iteration=iteration)
        processes = number_of_processes(config)
        _give_back_memory(config.policy.device)
        with (Path(folder) / "log").open("w+") as log:
            code = _run([f"--nproc-per-node={processes}", "--module", "tracewheel.learner.worker", str(job)], log)
            if code:
                log.seek(0)
                raise _failure(Path(folder), processes, code, log.readlines())
    figures: dict[str, float] = read_json(out / "metrics.json")
    return figures


def write_job(
    path: Path,
    config: UpdateSections,
    trajectories: Sequence[Path],
    scores: Sequence[Path],
    state: Path,
    reference: Path,
    out: Path,
    *,
    iteration: int,
) -> None:
    """Write the arguments of an update for `worker.work`."""
    files = {"state": state, "reference": reference, "out": out}
    lists = {"trajectories": trajectories, "scores": scores}
    write_json(
        path,
        {"config": config.model_dump(mode="json"), "iteration": iteration}
        | {name: str(file.absolute()) for name, file in files.items()}
        | {name: [str(file.absolute()) for file in paths] for name, paths in lists.items()},
    )


def number_of_processes(config: UpdateSections) -> int:
    """As the profile says, or else one for each GPU."""
    backend = config.learner.backend
    if isinstance(backend, DeepSpeedConfig) and backend.processes:
        return backend.processes
    if config.policy.device == "cpu":
        return 1
    import torch

    return max(1, torch.cuda.device_count())


def _give_back_memory(device: str) -> None:
    """The GPU memory that earlier stages of this process have left in torch's cache."""
    if device == "cpu":
        return
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def _run(arguments: list[str], log: IO[str]) -> int:
    command = [sys.executable, "-m", "tracewheel.learner.launch", "--standalone", *arguments]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
        return child.wait()
    except BaseException:
        # torchrun ends its workers when it is asked to end, and not when it is killed.
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            child.kill()
        raise


def _failure(folder: Path, processes: int, code: int, lines: list[str]) -> TracewheelError:
    for report in sorted(folder.glob("error-*.json")):
        known = read_json(report)
        kind = getattr(errors, known["kind"], InfrastructureError)
        raised: TracewheelError = kind(known["message"])
        return raised
    said = "".join(lines[-LAST_LINES:]).strip() or "nothing"
    return InfrastructureError(f"the update on {processes} processes ended with exit code {code}; its last words: {said}")


if __name__ == "__main__":
    from torch.distributed.run import main

    end_with_parent(os.getppid(), terminate)
    main()
