"""Seconds and bytes of the parts of a cluster: durations of the simulation's events, from rates and a model's shape."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BYTES = 2  # bfloat16
USABLE = 0.9  # share of a GPU's memory that weights and cache may fill, vLLM's default


@dataclass(frozen=True)
class Model:
    """A model's size. `tensor_parallel` GPUs make one replica; `lora` is the adapter's number of parameters."""

    name: str
    parameters: float
    lora: float
    layers: int
    cache_bytes: int  # keys and values of one token
    tensor_parallel: int = 1

    @property
    def weights_bytes(self) -> float:
        return self.parameters * BYTES


# Qwen2.5: parameters, an adapter on all linear layers (rank 16, 16 and 32), and cache by their configs.
MODELS = {
    "0.5B": Model("0.5B", 0.494e9, 8.8e6, 24, 12_288),
    "7B": Model("7B", 7.615e9, 40.4e6, 28, 57_344),
    "32B": Model("32B", 32.763e9, 268.4e6, 64, 262_144, tensor_parallel=2),
}


class Rates:
    """Rates by name, each with its source; `faster` divides the time of some parts.

    Args:
        values: Name to value.
        faster: Part (one of `PARTS`) to the factor by which it is faster.
    """

    PARTS = ("decode", "prefill", "tools", "cores", "update", "exchange", "start", "publish", "driver")

    def __init__(self, values: dict[str, float], faster: dict[str, float] | None = None) -> None:
        self.values = values
        self._faster = faster or {}

    @classmethod
    def read(cls, path: Path, changes: dict[str, float] | None = None) -> Rates:
        written: dict[str, Any] = json.loads(path.read_text())
        values = {name: float(entry["value"]) for name, entry in written.items()}
        unknown = sorted(set(changes or {}) - set(values))
        if unknown:
            raise SystemExit(f"no such rate: {', '.join(unknown)}; there are {', '.join(values)}")
        return cls(values | (changes or {}))

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def with_faster(self, part: str, times: float) -> Rates:
        return Rates(self.values, {part: times})

    def times(self, part: str) -> float:
        return self._faster.get(part, 1.0)


@dataclass(frozen=True)
class Pools:
    """The GPUs that generate and learn, and the cores of environments. `shared`: the same GPUs do both in turn."""

    generation: int
    learner: int
    cores: int
    shared: bool = False

    @property
    def gpus(self) -> int:
        return self.generation if self.shared else self.generation + self.learner


@dataclass(frozen=True)
class Costs:
    """Seconds and bytes for one model, its weights trained as LoRA or in full."""

    rates: Rates
    model: Model
    full: bool = False

    @property
    def policy_bytes(self) -> float:
        """Bytes of a published policy in float32: the adapter, or every weight."""
        return (self.model.parameters if self.full else self.model.lora) * 4

    def decode(self, context: float) -> tuple[float, float]:
        """Seconds of a decoding step, and of each sequence of so many tokens in addition."""
        rates, tensor_parallel = self.rates, self.model.tensor_parallel
        bandwidth = rates["gpu.bandwidth"] * rates["gpu.bandwidth_share"] * tensor_parallel
        latency = rates["gpu.step_s"] + (2 * self.model.layers * rates["gpu.all_reduce_s"] if tensor_parallel > 1 else 0.0)
        each = self.model.cache_bytes * context / bandwidth + self.read_s()
        first = self.model.weights_bytes / bandwidth + latency
        return first / rates.times("decode"), each / rates.times("decode")

    def read_s(self) -> float:
        """Seconds of computing one token."""
        rates = self.rates
        return 2 * self.model.parameters / (rates["gpu.flops"] * rates["gpu.prefill_share"] * self.model.tensor_parallel)

    def prefill_s(self) -> float:
        return self.read_s() / self.rates.times("prefill")

    def sessions(self, longest: float) -> int:
        """Episodes that a replica's memory holds, with `longest` tokens of cache each: waiting for a tool, they keep it."""
        memory = self.rates["gpu.memory"] * USABLE * self.model.tensor_parallel - self.model.weights_bytes
        return max(0, int(memory / (self.model.cache_bytes * longest)))

    def update_s(self, tokens: float, gpus: int) -> float:
        """An update on so many tokens: start of the processes, loading, then computing and exchanging at the same time.

        ZeRO-3 gathers the frozen base twice a micro-batch; with full weights gradients are reduced too. A GPU cannot have
        less than one micro-batch in each optimiser step. Without recomputation LoRA takes 4 FLOP a parameter and token,
        with it 6; full weights 8.
        """
        rates, model = self.rates, self.model
        steps = rates["update.minibatches"]
        micro = min(rates["update.micro_tokens"], tokens / steps)
        passes = steps * math.ceil(tokens / steps / micro / gpus)
        flop = (8 if self.full else 6) * model.parameters * micro
        compute = passes * flop / (rates["gpu.flops"] * rates["gpu.update_share"]) / rates.times("update")
        link = rates["network.fast"] if gpus <= rates["gpu.per_node"] else rates["network.node"]
        moved = (3 if self.full else 2) * model.weights_bytes * (gpus - 1) / gpus
        exchange = passes * moved / link / rates.times("exchange")
        return self.start_s(gpus) + max(compute, exchange)

    def start_s(self, gpus: int) -> float:
        """Seconds to load an update's processes: each machine reads model and state once, the state from the shared store."""
        state = self.model.lora * 4 * 3 if not self.full else self.model.parameters * 4 * 3
        read = self.model.weights_bytes / self.rates["node.disk"] + self.nodes(gpus) * state / self.rates["store.bandwidth"]
        return (self.rates["update.start_s"] + read) / self.rates.times("start")

    def publish_s(self, gpus: int) -> float:
        """Seconds until every machine that generates has read the new policy."""
        together = self.nodes(gpus) * self.policy_bytes / self.rates["store.bandwidth"]
        alone = self.policy_bytes / self.rates["node.disk"]
        return max(together, alone) / self.rates.times("publish")

    def swap_s(self) -> float:
        return self.rates["engine.swap_s"] / self.rates.times("publish")

    def driver_s(self, episodes: int, groups: int, tokens: float, readers: int) -> float:
        """Handing over, writing, scoring in one process; then each of the learner's processes reads all of it."""
        rates = self.rates
        written = tokens * rates["trajectory.token_bytes"]
        seconds = episodes * rates["driver.score_s"] + groups * rates["driver.queue_s"]
        return (seconds + written * (1 + readers) / rates["store.bandwidth"]) / rates.times("driver")

    def nodes(self, gpus: int) -> int:
        return math.ceil(gpus / self.rates["gpu.per_node"])
