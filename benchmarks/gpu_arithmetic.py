"""Qwen3-4B with LoRA 16 on one H100, by arithmetic: where an iteration's time goes, with PEFT's layers and with ours.

    python benchmarks/gpu_arithmetic.py

Every operation of a layer is counted on the meta device (`layer_memory.py`): it takes the longer of its FLOP over `FLOPS` and
its bytes over `BANDWIDTH`. These are what large kernels reach, not data sheets. Waits, starts of kernels and Python are not in
it, so it is a bound from above on tokens/s. The workload is that of `plugins/scale/benchmarks/scale_sim.py`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import torch
from layer_memory import SHAPES, layer
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FLOPS, BANDWIDTH, PEAK = 600e12, 2.8e12, 989e12
NAME, LAYERS, VOCABULARY, PARAMETERS = "Qwen3-4B", 36, 151_936, 4.022e9
MICRO_BATCH = 16_384
EPISODES, GROUP, PROMPT, TURNS, SAMPLED, OBSERVED = 128, 8, 1500, 8, 200, 300
LENGTH = PROMPT + TURNS * (SAMPLED + OBSERVED)
KEY_BYTES = LAYERS * 2 * 1024 * 2  # keys and values of a token
CACHE = 0.55 * 80e9 - PARAMETERS * 2 - 2.5e9
PRODUCTS = ("mm", "addmm", "addmm_")


class Clock(TorchDispatchMode):
    """Seconds of operations, those of them that products take, and those in which the memory is busy."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = self.products = self.memory = 0.0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        schema = function._schema
        view = any(each.alias_info is not None and not each.alias_info.is_write for each in schema.returns)
        name = schema.name.removeprefix("aten::")
        if view or name.startswith("empty") or name == "_unsafe_view":
            return made
        tensors = [each for each in tree_leaves((args, kwargs, made)) if isinstance(each, Tensor)]
        moved = sum(each.numel() * each.element_size() for each in tensors) / BANDWIDTH
        flop = 0.0
        if name in PRODUCTS:
            one, other = [each for each in args if isinstance(each, Tensor)][-2:]
            flop = 2.0 * one.shape[0] * one.shape[1] * other.shape[1]
            self.products += max(flop / FLOPS, moved)
        self.seconds += max(flop / FLOPS, moved)
        self.memory += moved
        return made


@dataclass(frozen=True)
class Update:
    """Of one micro-batch: milliseconds a layer, and tokens/s of the whole."""

    forward_ms: float
    products_ms: float
    backward_ms: float
    tokens_per_s: float
    mfu: float
    memory_share: float


def update(fused: bool, reference: bool) -> Update:
    """The learner on packed trajectories of `LENGTH` tokens, with recomputed layers, and a reference pass or none."""
    model, through = layer(NAME, fused, "meta")
    width, _, heads, _, _ = SHAPES[NAME]
    states = torch.empty(1, MICRO_BATCH, width, dtype=torch.bfloat16, device="meta", requires_grad=True)
    with Clock() as forward:
        made = through(states)
    with Clock() as backward:
        made.backward(torch.empty_like(made))
    pairs = MICRO_BATCH * LENGTH / 2
    attention = 4.0 * pairs * heads * 128 / FLOPS
    actions = MICRO_BATCH * TURNS * SAMPLED / LENGTH
    head = 2.0 * actions * VOCABULARY * width / FLOPS
    once = LAYERS * (forward.seconds + attention) + head
    seconds = 2 * once + LAYERS * (backward.seconds + 2.5 * attention) + 2 * head + (once if reference else 0.0)
    body = sum(each.numel() for each in model.get_base_model().model.layers.parameters())
    flop = LAYERS * (4.0 * body * MICRO_BATCH + 12.0 * pairs * heads * 128) + 4.0 * actions * VOCABULARY * width
    memory = LAYERS * (2 * forward.memory + backward.memory) / seconds
    milli = [round(1e3 * each, 1) for each in (forward.seconds, forward.products, backward.seconds)]
    return Update(*milli, round(MICRO_BATCH / seconds), round(flop / seconds / PEAK, 3), round(memory, 2))


def step_seconds(running: int, context: float) -> float:
    """A decoding step: all weights and the keys and values of `running` sessions are read once."""
    return (PARAMETERS * 2 + running * context * KEY_BYTES) / BANDWIDTH


def rollout() -> dict[str, float]:
    """128 episodes without waits for tools: as many run as their keys and values fit."""
    running = min(EPISODES, int(CACHE / KEY_BYTES / LENGTH * 2))  # half of their length on average
    decode = EPISODES * TURNS * SAMPLED / running * step_seconds(running, LENGTH / 2)
    read = EPISODES / GROUP * PROMPT + EPISODES * TURNS * OBSERVED
    prefill = 2.0 * PARAMETERS * read / FLOPS
    sampled = EPISODES * TURNS * SAMPLED
    return {
        "running": running,
        "decode_s": round(decode, 1),
        "prefill_s": round(prefill, 1),
        "sampled_per_s": round(sampled / (decode + prefill)),
    }


def iteration(found: Update, shared: bool) -> float:
    """Seconds of an update on all episodes; shared beginnings are read once a group."""
    tokens = EPISODES * LENGTH - (EPISODES - EPISODES / GROUP) * PROMPT * shared
    return round(tokens / found.tokens_per_s, 1)


def main() -> None:
    """Print the update as it was and is, and the rollout."""
    for said, fused, reference, shared in (
        ("PEFT, reference pass, packed", False, True, False),
        ("PEFT, packed", False, False, False),
        ("ours, packed", True, False, False),
        ("ours, shared_prefix", True, False, True),
    ):
        found = update(fused, reference)
        print(json.dumps({"update": said, **asdict(found), "update_s": iteration(found, shared)}))
    print(json.dumps({"rollout": "bfloat16, no waits", **rollout()}))


if __name__ == "__main__":
    main()
