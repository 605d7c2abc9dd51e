"""The processes of an update: how many there are, which one this is, and how they meet.

torchrun starts them and sets the environment. Each reads the same files and draws the same random numbers, so
each knows the whole batch; only the first writes.
"""

from __future__ import annotations

import atexit
import os
from datetime import timedelta

from tracewheel.core.errors import InfrastructureError

TIMEOUT_MINUTES = 30.0  # how long a process waits for the others before the update fails


def started() -> bool:
    """Whether torchrun has started this process."""
    return "WORLD_SIZE" in os.environ and "RANK" in os.environ


def rank() -> int:
    """The number of this process, from 0."""
    return int(os.environ["RANK"]) if started() else 0


def world_size() -> int:
    """How many processes there are."""
    return int(os.environ["WORLD_SIZE"]) if started() else 1


def is_first() -> bool:
    """Whether this is the process that writes files and prints results."""
    return rank() == 0


def join(device: str) -> None:
    """Join the process group: gloo between CPUs, plus NCCL between GPUs.

    Args:
        device: "cpu" or "cuda"; a process takes the GPU with its local rank.

    Raises:
        InfrastructureError: torchrun did not start this process, or the processes did not meet in time.
    """
    import torch
    from torch import distributed

    if distributed.is_initialized():
        return
    if not started():
        raise InfrastructureError("several processes need torchrun: WORLD_SIZE and RANK are not set")
    if device.startswith("cuda"):
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    kinds = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    try:
        distributed.init_process_group(kinds, timeout=timedelta(minutes=TIMEOUT_MINUTES))
    except (RuntimeError, ValueError, OSError) as error:
        raise InfrastructureError(f"process {rank()} of {world_size()} did not find the others: {error}") from error
    atexit.register(_leave)


def _leave() -> None:
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()
