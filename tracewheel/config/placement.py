"""Where the parts of a run compute, in which type, in how much memory, and what stays loaded.

The type, where the profile says `auto`, is bfloat16 where the hardware multiplies it and the base is large enough to gain: on a
CPU with AVX512-BF16 a pass of a 0.1B model takes a third of the time, and at any size half of the memory. Small bases stay in
float32: they gain little, and their adapters can be merged, which bfloat16 would round away. Adapters, optimiser and sums are
float32 in any case. Nothing else here changes a result.
"""

from __future__ import annotations

import functools
import json
import math
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, Tag

from tracewheel.config.base import Count, Positive, Strict, kind_or
from tracewheel.config.learner import DeepSpeedConfig
from tracewheel.core.errors import ConfigError

if TYPE_CHECKING:
    from tracewheel.config.profile import RetrainConfig


SMALL = 50_000_000  # parameters; the smallest language models in use have 100M and more
CPU_FLAGS = {"avx512_bf16": "AVX512-BF16", "amx_bf16": "AMX", "bf16": "Arm BF16"}


def choose_dtype(base: str, device: str) -> tuple[str, str]:
    """`float32` or `bfloat16` for a base on a device, and why.

    Equal on equal machines: a base that is not a local folder counts as large, downloaded or not.
    """
    if not base:
        return "float32", "no base"
    count = parameter_count(base)
    if count is not None and count < SMALL:
        return "float32", f"the base is small ({count / 1e6:.1f}M parameters)"
    where, supported = ("this GPU", _gpu_multiplies()) if device != "cpu" else ("this processor", _cpu_multiplies())
    if not supported:
        return "float32", f"{where} does not multiply bfloat16"
    return "bfloat16", f"{where} multiplies it ({supported}); LoRA, optimiser and sums stay float32"


def dtype_line(base: str, device: str, dtype: str) -> str:
    """One line for the start of a run: the type, and why."""
    chosen, why = choose_dtype(base, device)
    return f"policy.dtype: {dtype}, " + (why if chosen == dtype else f"as the profile says (auto: {chosen}, {why})")


def parameter_count(base: str) -> int | None:
    """The parameters in a local folder's safetensors files; None if it has none or is no folder."""
    files = sorted(Path(base).glob("*.safetensors")) if Path(base).is_dir() else []
    try:
        return sum(_count(file) for file in files) if files else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # a damaged file is reported where the base is loaded


def _count(file: Path) -> int:
    """From the header: 8 bytes with its length, then JSON."""
    with file.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


@functools.lru_cache(maxsize=1)
def _cpu_multiplies() -> str:
    """The processor's instructions for products in bfloat16; empty if it has none that we know how to find."""
    info = Path("/proc/cpuinfo")
    if platform.system() != "Linux" or not info.is_file():
        return ""
    lines = [line for line in info.read_text().splitlines() if line.startswith(("flags", "Features"))]
    found = set(lines[0].split()) if lines else set()
    return ", ".join(name for flag, name in CPU_FLAGS.items() if flag in found)


def _gpu_multiplies() -> str:
    import torch

    if not torch.cuda.is_available():
        return "as GPUs since 2020 do; none is visible here"
    return torch.cuda.get_device_name() if torch.cuda.is_bf16_supported(including_emulation=False) else ""


class TransformersEngineConfig(Strict):
    """Batched generation with Hugging Face transformers. The KV cache is kept across turns.

    `slots` conversations are in the cache at once: 32 of 4,096 tokens take 7.5 GB with a base of 7B in bfloat16.
    """

    kind: Literal["transformers"] = "transformers"
    slots: Count = 32


class VllmConfig(Strict):
    """Settings of vLLM, in process and as a server.

    `slots` sessions generate at once. vLLM takes a share `gpu_memory_utilization` of a GPU's memory, or `kv_cache_gib` for
    its KV cache where that is set (default on the CPU: 1 GiB).

    `draws`: who samples. Our own logits processor (`ours`) draws the same tokens as the other engines and turns in a form;
    vLLM's sampler (`engine`) can schedule ahead, and does neither.
    """

    slots: Count = 256
    draws: Literal["ours", "engine"] = "ours"
    tensor_parallel_size: Count = 1
    gpu_memory_utilization: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    kv_cache_gib: Positive | None = None


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


Card = Annotated[int, Field(ge=0)]
Cards = Annotated[tuple[Card, ...], Field(min_length=1)]
VARIABLE = "CUDA_VISIBLE_DEVICES"


class PlacementConfig(Strict):
    """The GPUs of each part of a run, by number, and what stays in memory between stages.

    `learner`: one GPU for each process of `learner.backend` deepspeed. `workers`: the GPUs of each local rollout worker
    (`rollout.mode` async). `vllm`: the GPUs of each vLLM server that the run starts; there are as many servers as lists.
    Without these, every part takes the first GPUs.

    `share`: what learner and vLLM do where they have a GPU in common. `memory`: each keeps its share of the memory
    (`gpu_memory_utilization`); `sleep`: vLLM gives its memory back while the update runs; `refuse`: that is an error. Two
    engines on one GPU are an error too, unless it is `engines`.

    `keep_learner`: base, optimiser and DeepSpeed's processes stay loaded from update to update of a loop. Default: yes, except
    on a GPU with the engine `transformers`, which loads a base of its own onto the learner's GPU, or with `share: sleep`.
    """

    learner: tuple[Card, ...] = ()
    workers: tuple[Cards, ...] = ()
    vllm: tuple[Cards, ...] = ()
    share: Literal["memory", "sleep", "refuse", "engines"] = "memory"
    keep_learner: bool | None = None

    @property
    def inside_worker(self) -> PlacementConfig:
        """For a process that sees its own GPUs only, and numbers them from 0."""
        return self.model_copy(update={"workers": (), "vllm": ()})


@dataclass(frozen=True)
class Placed:
    """A part of a run on its GPUs, and how much of their memory it takes."""

    part: str
    cards: tuple[int, ...]
    engine: bool
    memory: str = "what it needs"


def placed(profile: RetrainConfig) -> list[Placed]:
    """Where the parts of a run compute, on GPUs of this machine that the run takes itself; none on the CPU."""
    if not profile.policy.device.startswith("cuda"):
        return []
    placement, rollout, engine = profile.placement, profile.rollout, profile.rollout.engine
    own = int(profile.policy.device.partition(":")[2] or 0)
    backend = profile.learner.backend
    of_learner: tuple[int, ...] = (own,)
    if isinstance(backend, DeepSpeedConfig):
        of_learner = placement.learner or tuple(range(backend.processes or 1))
    stays = "what it needs, between updates too" if profile.keeps_learner else "what it needs, during updates"
    parts = [Placed("learner", of_learner, False, stays)]
    size = _cards_of_an_engine(profile)
    default = tuple(range(own, own + size))
    share = "what it needs"
    if not isinstance(engine, TransformersEngineConfig):
        share = f"a share of {engine.gpu_memory_utilization:g}" + (", not during updates" if placement.share == "sleep" else "")
    if isinstance(engine, VllmServerConfig):
        if not engine.servers:
            servers = placement.vllm or (default,)
            parts += [Placed(f"vLLM server {number}", cards, True, share) for number, cards in enumerate(servers, start=1)]
    elif not isinstance(engine, TransformersEngineConfig) or rollout.mode != "sync":
        parts.append(Placed("engine of this process", default, True, share))
    count = rollout.workers.count if rollout.mode == "async" else 0
    if rollout.workers.kind == "local" and not (isinstance(engine, VllmServerConfig) and engine.servers):
        cards_of_workers = placement.workers or (default,) * count
        parts += [
            Placed(f"rollout worker {number}", cards, True, share) for number, cards in enumerate(cards_of_workers, start=1)
        ]
    return parts


def check_placement(profile: RetrainConfig) -> None:
    """Check that the parts of a profile fit the GPUs that it gives them.

    Raises:
        ValueError: they do not; the message says what to set.
    """
    placement, rollout, engine, backend = profile.placement, profile.rollout, profile.rollout.engine, profile.learner.backend
    size = _cards_of_an_engine(profile)
    if placement.learner:
        if not isinstance(backend, DeepSpeedConfig):
            raise ValueError(
                "placement.learner: the backend 'local' computes on policy.device; set that, or learner.backend.kind"
            )
        if backend.processes not in (None, len(placement.learner)):
            raise ValueError(
                f"placement.learner: {len(placement.learner)} GPUs, but learner.backend.processes is {backend.processes}"
            )
        if len(set(placement.learner)) < len(placement.learner):
            raise ValueError("placement.learner: names a GPU twice; each process takes one of its own")
    if placement.vllm and (not isinstance(engine, VllmServerConfig) or engine.servers):
        raise ValueError(
            "placement.vllm: is for servers that the run starts: set rollout.engine.kind to 'vllm_server', without servers"
        )
    if placement.workers:
        count = rollout.workers.count if rollout.mode == "async" else 0
        if rollout.workers.kind == "ray":
            raise ValueError("placement.workers: Ray places its own workers: set rollout.workers.gpus")
        if len(placement.workers) != count:
            raise ValueError(f"placement.workers: GPUs for {len(placement.workers)} workers, but rollout.mode has {count}")
    for key in ("vllm", "workers"):
        for cards in getattr(placement, key):
            if len(set(cards)) != len(cards) or len(cards) != size:
                raise ValueError(
                    f"placement.{key}: {list(cards)} where an engine takes {size} different GPUs: rollout.engine's "
                    "tensor_parallel_size times data_parallel_size"
                )
    if placement.share == "sleep" and (rollout.mode != "sync" or isinstance(engine, TransformersEngineConfig)):
        raise ValueError(
            "placement.share 'sleep' needs an engine of vLLM and rollout.mode 'sync': others sample during an update"
        )
    _check_common(profile)


def check_device(device: str, count: int) -> None:
    """Check that there is a GPU if the policy's device is one.

    Args:
        device: `policy.device`.
        count: How many GPUs this process sees.

    Raises:
        ConfigError: there is none; the message says what to set.
    """
    if device == "cpu" or count:
        return
    masked = f" ({VARIABLE} is '{os.environ[VARIABLE]}')" if VARIABLE in os.environ else ""
    raise ConfigError(
        f"policy.device: is '{device}', but this process sees no GPU{masked}. Set policy.device to 'cpu', or run this where "
        'torch.cuda.is_available() is true: `python -c "import torch; print(torch.cuda.is_available())"` in this environment'
    )


def check_cards(profile: RetrainConfig, count: int) -> None:
    """Check that the GPUs exist.

    Args:
        profile: The profile.
        count: How many this process sees.

    Raises:
        ConfigError: one does not; the message names the part that wants it.
    """
    check_device(profile.policy.device, count)
    for part in placed(profile):
        if max(part.cards) >= count:
            raise ConfigError(
                f"placement: {part.part} takes GPU {max(part.cards)}, but this process sees GPUs 0 to {count - 1}"
            )


def _check_common(profile: RetrainConfig) -> None:
    parts = placed(profile)
    for number, one in enumerate(parts):
        for other in parts[number + 1 :]:
            common = sorted(set(one.cards) & set(other.cards))
            if not common:
                continue
            if one.engine and other.engine and profile.placement.share != "engines":
                raise ValueError(
                    f"placement: {one.part} and {other.part} would both load an engine on GPU {common[0]}; give each its own "
                    "GPUs in placement.workers or placement.vllm, or set placement.share to 'engines'"
                )
            if profile.placement.share == "refuse":
                raise ValueError(
                    f"placement: {one.part} and {other.part} have GPU {common[0]} in common; give each its own, or set "
                    "placement.share to 'memory' or 'sleep'"
                )


def _cards_of_an_engine(profile: RetrainConfig) -> int:
    engine = profile.rollout.engine
    if isinstance(engine, TransformersEngineConfig):
        return 1
    return engine.tensor_parallel_size * (engine.data_parallel_size if isinstance(engine, VllmServerConfig) else 1)


def visible(cards: tuple[int, ...]) -> dict[str, str]:
    """The environment variable that shows a process these GPUs only; none for no cards.

    Numbers count within what this process sees itself.

    Raises:
        ConfigError: it does not see one of them.
    """
    if not cards:
        return {}
    seen = os.environ.get(VARIABLE)
    names = seen.split(",") if seen else [str(number) for number in range(max(cards) + 1)]
    if max(cards) >= len(names):
        raise ConfigError(f"placement: takes GPU {max(cards)}, but {VARIABLE} is {seen}")
    return {VARIABLE: ",".join(names[card] for card in cards)}


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
