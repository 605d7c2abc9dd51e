"""What a run may take of the machine."""

from __future__ import annotations

from typing import Literal

from tracewheel.config.base import Positive, Strict


class ResourcesConfig(Strict):
    """The memory that a run may take, and whether it is foreseen. Nothing here changes a result.

    `memory_gib` bounds main memory, `gpu_memory_gib` that of `policy.device`; without them the limit is what the machine and
    a cgroup have left. A run whose foreseen peak is above the limit is refused.

    `measure`: a short pass of the base in a process of its own, kept for the next time (`auto`: not for a base of a few
    megabytes), or `never`, and then nothing is foreseen.
    """

    memory_gib: Positive | None = None
    gpu_memory_gib: Positive | None = None
    measure: Literal["auto", "always", "never"] = "auto"
