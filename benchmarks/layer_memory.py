"""What a layer keeps for the backward pass, and how long it takes, with PEFT's LoRA layers and with ours.

    python benchmarks/layer_memory.py [--tokens 16384]   # bytes at the large profiles' shapes, on the meta device
    python benchmarks/layer_memory.py --seconds          # CPU seconds side by side at a small shape

`kept` is what saved-tensor hooks see, each storage once; `peak` the most that is alive in a forward and backward pass,
gradients among it. Weights do not count. Attention stands for FlashAttention, which keeps queries, keys, values, what it
returns, and a float32 a head.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Width, inner width, heads, heads of keys, rank of the adapter; heads of 128.
SHAPES = {
    "Qwen3-4B": (2560, 9728, 32, 8, 16),
    "Qwen2.5-7B": (3584, 18_944, 28, 4, 16),
    "Qwen2.5-32B": (5120, 27_648, 40, 8, 32),
    "small": (512, 1408, 8, 2, 16),
}


class _Flash(torch.autograd.Function):
    """Keeps what FlashAttention keeps; its numbers mean nothing."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        made = query.clone()
        ctx.save_for_backward(query, key, value, made, query.new_empty(query.shape[:-1], dtype=torch.float32))
        return made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        _, key, value, _, _ = ctx.saved_tensors
        return gradient, torch.zeros_like(key), torch.zeros_like(value)


def _attention(module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **named: Any) -> tuple[Tensor, None]:
    return _Flash.apply(query, key, value).transpose(1, 2), None  # type: ignore[no-untyped-call]


def layer(name: str, fused: bool, device: str) -> Any:
    """One adapted layer of a model in bfloat16, frozen but for its adapter, and the function that passes states through it."""
    from peft import LoraConfig, get_peft_model
    from transformers import AttentionInterface, AutoModelForCausalLM, Qwen2Config, Qwen3Config

    from tracewheel.policy.lora_products import fuse_adapters

    AttentionInterface.register("keeps-alike", _attention)
    width, inner, heads, key_heads, rank = SHAPES[name]
    config = (Qwen2Config if name.startswith("Qwen2") else Qwen3Config)(
        hidden_size=width, intermediate_size=inner, num_attention_heads=heads, num_key_value_heads=key_heads,
        num_hidden_layers=1, vocab_size=64, head_dim=64 if name == "small" else 128,
    )  # fmt: skip
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="keeps-alike")
        adapted = get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear"))
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
    if fused:
        fuse_adapters(adapted)
    body = adapted.get_base_model().model

    def through(states: Tensor) -> Tensor:
        places = body.rotary_emb(states, torch.arange(states.shape[1], device=device)[None])
        made = body.layers[0](states, position_embeddings=places)
        return made if isinstance(made, Tensor) else made[0]

    return adapted, through


class _Peak(TorchDispatchMode):
    """The most bytes that are alive at once, of what is made while it is active."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.peak = 0
        self._alive: set[int] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        given = {each.untyped_storage()._cdata for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        for storage in (each.untyped_storage() for each in tree_leaves(made) if isinstance(each, Tensor)):
            if storage._cdata not in given | self._alive:
                self._alive.add(storage._cdata)
                self.bytes += storage.nbytes()
                self.peak = max(self.peak, self.bytes)
                weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())
        return made

    def _freed(self, place: int, size: int) -> None:
        self._alive.discard(place)
        self.bytes -= size


def layer_bytes(name: str, fused: bool, tokens: int) -> tuple[int, int]:
    """Bytes that one layer keeps for the backward pass of `tokens` tokens, and the peak of both passes."""
    model, through = layer(name, fused, "meta")
    states = torch.empty(1, tokens, SHAPES[name][0], dtype=torch.bfloat16, device="meta", requires_grad=True)
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    kept: dict[int, Tensor] = {}  # alive, so that no address is used twice

    def keep(tensor: Tensor) -> Tensor:
        kept.setdefault(tensor.untyped_storage()._cdata, tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        through(states)
    with _Peak() as peak:
        made = through(states)
        made.backward(torch.empty_like(made))
    return sum(each.untyped_storage().nbytes() for place, each in kept.items() if place not in own), peak.peak


def seconds(tokens: int = 4096, times: int = 7) -> dict[str, float]:
    """CPU seconds of forward and backward pass of the small layer, the two kinds in turn: medians."""
    both = {fused: layer("small", fused, "cpu")[1] for fused in (False, True)}
    states = torch.randn(1, tokens, SHAPES["small"][0], dtype=torch.bfloat16, requires_grad=True)
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(times):
        for fused, through in both.items():
            began = time.process_time()
            through(states).sum().backward()
            found[fused].append(time.process_time() - began)
    before, after = statistics.median(found[False][1:]), statistics.median(found[True][1:])
    return {"peft_s": round(before, 4), "ours_s": round(after, 4), "ratio": round(before / after, 2)}


def main() -> None:
    """Print one line of JSON for each shape, or the seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=16_384)
    parser.add_argument("--seconds", action="store_true")
    options = parser.parse_args()
    if options.seconds:
        print(json.dumps(seconds()))
        return
    for name in SHAPES:
        for fused in (False, True):
            kept, peak = (round(size / 1e9, 2) for size in layer_bytes(name, fused, options.tokens))
            print(json.dumps({"shape": name, "lora": "ours" if fused else "PEFT", "kept_gb": kept, "peak_gb": peak}))


if __name__ == "__main__":
    main()
