"""Generation on a GPU: tokens/s of our engine at Qwen3-0.6B's shape, and what a layer spends on where its keys are."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import replace
from typing import Any

import torch
from learner_workload import Workload
from learning import SMALL, _batches, _wait

from tracewheel.engines.base import Request, Sampling
from tracewheel.engines.transformers import TransformersEngine
from tracewheel.learner.kernels import segment_attention
from tracewheel.learner.kernels.packing import pack
from tracewheel.policy.adapters import PolicyRef

QWEN3_600M = Workload(
    vocabulary=151_936, hidden=1024, layers=28, intermediate=3072, heads=16, key_heads=8, head_dim=128, tokens=4096
)
PROMPT, TURN = 512, 256


def decode(device: str, small: bool, seconds: float) -> list[dict[str, Any]]:
    """Tokens/s in turns of `TURN` tokens after prompts that no two sessions share, by the number of slots."""
    from learner_workload import policy

    workload = SMALL if small else QWEN3_600M
    prompt, turn = (16, 8) if small else (PROMPT, TURN)
    with torch.device(device):
        adapted = policy(workload, torch.float32 if small else torch.bfloat16)
    model = adapted.unload().eval()
    began, found = time.monotonic(), []
    for slots in (2, 4) if small else (64, 256):
        if time.monotonic() - began > seconds:
            found.append({"slots": slots, "error": "no time left"})
            continue
        try:
            found.append(_decode(model, workload, slots, prompt, turn, device))
        except Exception as error:  # the other number goes on
            found.append({"slots": slots, "error": f"{type(error).__name__}: {error}"[:400]})
    return found


def _decode(model: Any, workload: Workload, slots: int, prompt: int, turn: int, device: str) -> dict[str, Any]:
    engine = TransformersEngine(lambda _: model, PolicyRef("random"), workload.vocabulary - 1, Sampling(), slots)
    rng = random.Random(0)
    for number in range(slots):
        ids = [rng.randrange(3, workload.vocabulary) for _ in range(prompt)]
        engine.submit(Request(number, ids, turn, seed=number))
    _wait(device)
    start, tokens, steps, reading = time.perf_counter(), 0, 0, 0.0
    while not engine.idle:
        ended = engine.step()
        tokens += sum(len(each.token_ids) for each in ended)
        steps += 1
        if steps == 1:
            _wait(device)
            reading = time.perf_counter() - start
    _wait(device)
    wall = time.perf_counter() - start
    peak = torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None
    return {
        "slots": slots,
        "tokens_per_s": tokens / wall,
        "ms_per_step": 1e3 * (wall - reading) / max(1, steps - 1),
        "first_step_s": reading,
        "peak_gb": peak,
    }


def attention(device: str, small: bool) -> list[dict[str, Any]]:
    """Ms a layer of what attention does beside the products, for forked turns at 16,384 tokens: indices and gathered keys."""
    import learning
    from torch.nn.attention import varlen

    tokens, width = (256, 8) if small else (16_384, 128)
    theirs, found = varlen.varlen_attn, []
    varlen.varlen_attn = lambda query, *given, **more: query
    try:
        for turns in (8, 20):
            learning.TURNS = turns
            (batch,) = _batches(replace(SMALL, tokens=tokens), "forks", device)
            start = time.perf_counter()
            plan = pack(batch.token_ids, batch.attention_mask, batch.before, share_prefixes=False).plan
            packing = time.perf_counter() - start
            length = int(batch.attention_mask.sum())
            states = [torch.randn(1, heads, length, width, device=device) for heads in (4, 1, 1)]
            times = []
            for _ in range(12):
                _wait(device)
                start = time.perf_counter()
                segment_attention._variable_length(*states, None, plan)
                _wait(device)
                times.append(time.perf_counter() - start)
            found.append({"turns": turns, "pack_ms": 1e3 * packing, "layer_ms": 1e3 * statistics.median(times)})
    finally:
        varlen.varlen_attn = theirs
        learning.TURNS = 8
    return found
