"""Rollout workers: processes that sample while the learner updates."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Tag

from tracewheel.config.base import Count, NotNegative, Strict, kind_or


class LocalWorkersConfig(Strict):
    """`count` processes on this machine, each with `threads` torch threads."""

    kind: Literal["local"] = "local"
    count: Count = 1
    threads: Count = 1


class RayWorkersConfig(Strict):
    """`count` workers on a Ray cluster, each with `cpus` CPUs and `gpus` GPUs.

    `address` is the address of a running cluster, or `auto` for the one this machine belongs to; null starts one here.
    """

    kind: Literal["ray"]
    address: str | None = None
    count: Count = 1
    cpus: NotNegative = 1.0
    gpus: NotNegative = 0.0


WorkersConfig = Annotated[
    Annotated[LocalWorkersConfig, Tag("local")] | Annotated[RayWorkersConfig, Tag("ray")], kind_or("local")
]
