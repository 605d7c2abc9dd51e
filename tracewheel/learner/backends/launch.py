"""An update or a warm start on several processes: the commands and the flow start it when a profile asks for DeepSpeed.

`python -m tracewheel.learner.backends.launch` is torchrun, except that it ends when the process that started it does.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import Any

from tracewheel.config import DeepSpeedConfig, PassesConfig, UpdateSections, WarmStartSections
from tracewheel.config.placement import visible
from tracewheel.core.files import read_json
from tracewheel.core.processes import end_with_parent, terminate
from tracewheel.learner.backends.kept_processes import KeptProcesses
from tracewheel.learner.kept_learner import free_memory, learner_key
from tracewheel.learner.update_files import UpdateFiles

WORKER = "tracewheel.learner.backends.worker"
OPTIMIZER = "optimizer.pt"
_kept: tuple[str, KeptProcesses] | None = None
_in_use = threading.Lock()


def update_by_processes(config: UpdateSections, files: UpdateFiles, *, iteration: int) -> dict[str, float]:
    """Run `update` on as many processes as the profile asks for; returns its metrics.

    The processes of the previous update carry on where this one continues it.

    Raises:
        TracewheelError: as `update`, from the first process that failed.
        InfrastructureError: a process was killed or crashed; the message ends with the last lines of its log.
    """
    global _kept
    with _in_use:
        key = learner_key(config, files.state, files.reference)
        kept, _kept = _kept, None
        if kept is not None and not (kept[0] == key and kept[1].alive() and (files.state / OPTIMIZER).is_file()):
            kept[1].close()
            kept = None
        processes = kept[1] if kept else _start("update", config.learner, config)
        processes(update_job(config, files, iteration=iteration))
        if config.keeps_learner:
            _kept = key, processes
        else:
            processes.close()
    figures: dict[str, float] = read_json(files.out / "metrics.json")
    return figures


def release_processes() -> None:
    """End the processes that wait for a next update."""
    global _kept
    with _in_use:
        if _kept is not None:
            _kept[1].close()
            _kept = None


def warm_start_by_processes(config: WarmStartSections, curated: Path, out: Path, demonstrations: str) -> dict[str, float]:
    """Run `warm_start` on as many processes as the profile asks for; returns its metrics.

    Raises:
        TracewheelError: as `warm_start`, from the first process that failed.
        InfrastructureError: a process was killed or crashed; the message ends with the last lines of its log.
    """
    paths = {"curated": str(curated), "out": str(out)}
    job = {"stage": "warm_start", "config": config.model_dump(mode="json"), "demonstrations": demonstrations, **paths}
    with contextlib.closing(_start("warm_start", config.warm_start, config)) as processes:
        processes(job)
    figures: dict[str, float] = read_json(out / "metrics.json")
    return figures


def update_job(config: UpdateSections, files: UpdateFiles, *, iteration: int) -> dict[str, Any]:
    """The arguments of an update as JSON types, for `worker.carry_out`."""
    return {"stage": "update", "config": config.model_dump(mode="json"), "files": files.to_json(), "iteration": iteration}


def number_of_processes(settings: PassesConfig, device: str) -> int:
    """The profile's number, or else one per GPU."""
    if isinstance(settings.backend, DeepSpeedConfig) and settings.backend.processes:
        return settings.backend.processes
    if device == "cpu":
        return 1
    import torch

    return max(1, torch.cuda.device_count())


def _start(stage: str, settings: PassesConfig, config: UpdateSections | WarmStartSections) -> KeptProcesses:
    free_memory(config.policy.device)
    cards = config.placement.learner
    count = len(cards) or number_of_processes(settings, config.policy.device)
    return KeptProcesses(WORKER, count, stage, visible(cards))


if __name__ == "__main__":
    from torch.distributed.run import main

    end_with_parent(os.getppid(), terminate)
    main()
