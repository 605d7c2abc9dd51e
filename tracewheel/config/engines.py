"""Engines, which sample turns from token ids."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from tracewheel.config.base import Count, Positive, Strict, kind_or


class TransformersEngineConfig(Strict):
    """Batched generation with Hugging Face transformers. The KV cache is kept across turns.

    `slots` conversations are in the cache at once: 32 of 4,096 tokens take 7.5 GB with a base of 7B in bfloat16.
    """

    kind: Literal["transformers"] = "transformers"
    slots: Count = 32


class VllmConfig(Strict):
    """Settings of vLLM, in process and as a server.

    `slots` sessions generate at once. vLLM takes a share `gpu_memory_utilization` of a GPU's memory, or `kv_cache_gib` for
    its KV cache where that is set (default on the CPU: 1 GiB). Up to `max_loras` adapters are active at once, of the
    largest rank that the profile trains at most. `enforce_eager` disables CUDA graphs: a faster
    start, slower generation.
    """

    slots: Count = 256
    tensor_parallel_size: Count = 1
    gpu_memory_utilization: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    kv_cache_gib: Positive | None = None
    max_loras: Count = 2
    enforce_eager: bool = False


class VllmEngineConfig(VllmConfig):
    """vLLM in the rollout process: one engine for all stages, with an adapter for each policy version."""

    kind: Literal["vllm"]


class VllmServerConfig(VllmConfig):
    """vLLM behind HTTP: running `servers` by address, or one started by the stage when none are given.

    A session stays on the server that its number assigns it to. A server that does not answer for `patience` seconds, even
    after a restart, ends the stage. `data_parallel_size` applies to a server that the stage starts.
    """

    kind: Literal["vllm_server"]
    servers: tuple[str, ...] = ()
    data_parallel_size: Count = 1
    patience: Positive = 600.0


EngineConfig = Annotated[
    Annotated[TransformersEngineConfig, Tag("transformers")]
    | Annotated[VllmEngineConfig, Tag("vllm")]
    | Annotated[VllmServerConfig, Tag("vllm_server")],
    kind_or("transformers"),
]
