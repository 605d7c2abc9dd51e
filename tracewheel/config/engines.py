"""Engines: what turns token ids into sampled turns."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from tracewheel.config.base import Count, Positive, Strict, kind_or


class TransformersEngineConfig(Strict):
    """Batched generation with Hugging Face transformers, the KV cache kept across turns."""

    kind: Literal["transformers"] = "transformers"
    slots: Count = 256


class VllmConfig(Strict):
    """What vLLM has in process and as a server.

    `slots` sessions speak at once. Of a GPU's memory vLLM takes the share `gpu_memory_utilization`, unless
    `kv_cache_gib` says how much keys and values may take (on the CPU 1 GiB where it does not). Up to `max_loras`
    adapters speak at once, none of a larger rank than `max_lora_rank`; null is the largest that the profile
    trains. `enforce_eager` does without CUDA graphs: a quicker start, slower tokens.
    """

    slots: Count = 256
    tensor_parallel_size: Count = 1
    gpu_memory_utilization: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    kv_cache_gib: Positive | None = None
    max_loras: Count = 2
    max_lora_rank: Count | None = None
    enforce_eager: bool = False


class VllmEngineConfig(VllmConfig):
    """vLLM in the process that rolls out: one engine for all stages, adapters exchanged by version."""

    kind: Literal["vllm"]


class VllmServerConfig(VllmConfig):
    """vLLM behind HTTP: the `servers` that run already, by address, or one that is started here when there are none.

    Sessions are spread over the servers by their number and stay where they are. A server that does not
    answer for `patience` seconds, though it be started anew, ends the stage. `data_parallel_size` is for a
    server that is started here.
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
