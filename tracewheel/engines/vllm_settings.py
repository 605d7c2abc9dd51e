"""vLLM's settings, in process or as a server, and the environment variables that it reads at its import."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

from tracewheel.config import EngineSections, VllmEngineConfig, VllmServerConfig
from tracewheel.policy.adapters import base_folder
from tracewheel.policy.probe import TOKENS

DRAWS = "tracewheel.engines.vllm_draws:SessionDraws"
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
CPU_BLOCK = 32
CPU_KV_CACHE_GIB = 1.0
GPU_BATCHED_TOKENS = 16_384  # a step, as vLLM itself takes on large GPUs: long prompts read the weights less often
ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    # Otherwise vLLM binds the process, and so the trainer, to some cores.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}


# The older model runner: it takes logits processors of our form on all devices.
OURS = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
MAX_LORAS = 2  # adapters in use at a time


@dataclass(frozen=True)
class VllmSettings:
    """What vLLM is started with. Engines with equal settings and an equal base share one vLLM."""

    dtype: str
    device: str
    threads: int
    longest: int
    slots: int
    max_rank: int
    tensor_parallel_size: int
    data_parallel_size: int
    gpu_memory_utilization: float
    kv_cache_gib: float | None
    sleeps: bool = False
    batch_invariant: bool = False
    draws: Literal["ours", "engine"] = "ours"

    @classmethod
    def of(cls, config: EngineSections) -> VllmSettings:
        """The settings of a profile whose engine is vLLM."""
        engine = config.rollout.engine
        assert isinstance(engine, VllmEngineConfig | VllmServerConfig)
        return cls(
            dtype=config.policy.dtype,
            device=config.policy.device,
            threads=config.threads,
            longest=max(config.rollout.max_tokens, TOKENS + 2),
            slots=engine.slots,
            max_rank=_rank(config.largest_rank),
            tensor_parallel_size=engine.tensor_parallel_size,
            data_parallel_size=engine.data_parallel_size if isinstance(engine, VllmServerConfig) else 1,
            gpu_memory_utilization=engine.gpu_memory_utilization,
            kv_cache_gib=engine.kv_cache_gib,
            sleeps=config.placement.share == "sleep" and config.policy.device != "cpu",
            batch_invariant=config.policy.deterministic and config.policy.device != "cpu",
            draws=engine.draws,
        )

    def arguments(self, base: str) -> dict[str, Any]:
        """Arguments of vLLM for a base model."""
        arguments: dict[str, Any] = {
            "model": str(base_folder(base).resolve()),
            "dtype": self.dtype,
            "max_model_len": self.longest,
            "max_num_seqs": self.slots,
            "enable_prefix_caching": True,
            "enable_lora": True,
            # One more than may be in use: a new adapter is probed while the others generate.
            "max_loras": MAX_LORAS + 1,
            "max_cpu_loras": MAX_LORAS + 1,
            "max_lora_rank": self.max_rank,
            "tensor_parallel_size": self.tensor_parallel_size,
            "logprobs_mode": "processed_logprobs",
            "generation_config": "vllm",
            "skip_tokenizer_init": True,
            "use_tqdm_on_load": False,
            "disable_log_stats": True,
            "seed": 0,
        }
        if self.draws == "ours":
            arguments |= {"logits_processors": [DRAWS], "logprobs_mode": "processed_logits", "async_scheduling": False}
        kv_cache_gib = self.kv_cache_gib
        if self.device == "cpu":
            arguments["block_size"] = CPU_BLOCK
            kv_cache_gib = kv_cache_gib or CPU_KV_CACHE_GIB
        else:
            arguments["gpu_memory_utilization"] = self.gpu_memory_utilization
            arguments["max_num_batched_tokens"] = max(GPU_BATCHED_TOKENS, self.slots)
        if self.dtype != "float32":  # as the learner's: the head's rounding alone is 0.003 to 0.006 nats a token
            arguments["hf_overrides"] = {"head_dtype": "float32"}
        if self.sleeps:
            arguments["enable_sleep_mode"] = True
        if kv_cache_gib:
            arguments["kv_cache_memory_bytes"] = int(kv_cache_gib * 2**30)
        return arguments


def environment(settings: VllmSettings, in_process: bool) -> dict[str, str]:
    """The variables to set for vLLM: those of ours that are not set already."""
    wanted = ENVIRONMENT | ({"VLLM_ENABLE_V1_MULTIPROCESSING": "0"} if in_process else {})
    wanted |= OURS if settings.draws == "ours" else {}
    wanted |= {"VLLM_BATCH_INVARIANT": "1"} if settings.batch_invariant else {}
    return {name: value for name, value in wanted.items() if name not in os.environ}


def _rank(rank: int) -> int:
    """The smallest rank of vLLM's that is at least this one."""
    return next((allowed for allowed in RANKS if allowed >= rank), rank)
