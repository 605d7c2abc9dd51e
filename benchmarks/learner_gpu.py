"""One update of a Qwen2.5-7B-shaped model with random weights on one GPU: tokens/s, MFU, longest trajectory."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import date
from typing import Any

import torch
from learner_workload import Workload, policy, trajectories

from tracewheel.config import ClipConfig
from tracewheel.learner.batch import Batch, micro_batches, step_totals
from tracewheel.learner.kernels.language_model import checkpoint_activations
from tracewheel.learner.kernels.packing import Layout, pack
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.learner.losses import PolicyTokens, StepTotals, policy_loss

QWEN_7B = Workload(
    vocabulary=152_064, hidden=3584, layers=28, intermediate=18_944, heads=28, key_heads=4, group=8, prompts=4, tied=0
)
# Dense bfloat16 peak from the data sheets, in FLOP/s, for the MFU.
PEAK = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12}
LENGTHS = [2048, 8192, 32_768]
LONGEST = 1 << 20


def measure(workload: Workload = QWEN_7B, device: str = "cuda", lengths: list[int] | None = None) -> dict[str, Any]:
    """Tokens/s and MFU at several lengths and layouts, and the longest trajectory that fits an update."""
    with torch.device(device):
        model = policy(workload, torch.bfloat16 if device == "cuda" else torch.float32)
    checkpoint_activations(model)
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-4)
    name = torch.cuda.get_device_name() if device == "cuda" else device
    peak = next((value for key, value in PEAK.items() if key in name), None)
    points = []
    for tokens in lengths or LENGTHS:
        for layout in ("padded", "packed", "shared_prefix"):
            point = _throughput(model, optimizer, replace(workload, tokens=tokens), layout, device)
            mfu = point["flop"] / point["wall_s"] / peak if peak else None
            points.append(point | {"mfu": mfu})
    longest = _longest(model, workload, device) if device == "cuda" else None
    return {"date": date.today().isoformat(), "device": name, "points": points, "longest_trajectory": longest}


def _throughput(model: Any, optimizer: Any, workload: Workload, layout: Layout, device: str) -> dict[str, Any]:
    table = trajectories(workload)
    table["logprobs"] = [[0.0] * len(ids) for ids in table["token_ids"]]
    cap = max(16_384, workload.tokens)
    batches = [batch.to(device) for batch in micro_batches(table, [1.0] * len(table), cap, layout=layout)]
    for _ in range(2):  # the first run warms up
        _wait(device)
        start = time.perf_counter()
        _update(model, optimizer, batches, layout)
        _wait(device)
        wall = time.perf_counter() - start
    tokens = sum(map(len, table["token_ids"]))
    return {
        "layout": layout,
        "tokens": workload.tokens,
        "wall_s": wall,
        "tokens_per_s": tokens / wall,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None,
        "flop": _flop(model, batches, layout, workload),
    }


def _update(model: Any, optimizer: Any, batches: list[Batch], layout: Layout) -> None:
    totals: StepTotals = step_totals(batches)
    for batch in batches:
        logprobs, _ = action_logprobs(model, batch, layout=layout)
        old = logprobs.detach()
        tokens = PolicyTokens(logprobs, old, batch.advantages, batch.action_mask)
        policy_loss(ClipConfig(), tokens, totals, "token").loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def _flop(model: Any, batches: list[Batch], layout: Layout, workload: Workload) -> float:
    """FLOP of the forward and backward pass; frozen weights have no gradient, and checkpointing's recomputation is left out.

    Tokens that a layout skips (padding, shared beginnings) do not count, so the MFU is that of the work done.
    """
    body = sum(each.numel() for name, each in model.named_parameters() if "layers" in name)
    total = 0.0
    for batch in batches:
        mask = torch.ones_like(batch.attention_mask) if layout == "padded" else batch.attention_mask
        segments = pack(batch.token_ids, mask, share_prefixes=layout == "shared_prefix").segments
        # Query and key, and the sum over values: 2 FLOP each for a pair and a channel; backward twice that.
        pairs = sum(each.length * (each.seen_length - each.length) + each.length**2 / 2 for each in segments)
        total += 4.0 * body * sum(each.length for each in segments) + 12.0 * pairs * workload.hidden * workload.layers
        total += 4.0 * workload.vocabulary * workload.hidden * int(batch.action_mask.sum())
    return total


def _longest(model: Any, workload: Workload, device: str) -> int:
    """The longest single trajectory, to 1,024 tokens, whose gradient fits."""
    fits, fails = 0, LONGEST + 1024
    tokens = 32_768
    while fails - fits > 1024:
        (row,) = trajectories(replace(workload, tokens=tokens, group=1, prompts=1)).to_dict("records")
        row["logprobs"] = [0.0] * len(row["token_ids"])
        (batch,) = micro_batches(_frame(row), [1.0], tokens)
        try:
            action_logprobs(model, batch.to(device), layout="packed")[0].sum().backward()
            fits = tokens
        except torch.cuda.OutOfMemoryError:
            fails = tokens
        model.zero_grad()
        torch.cuda.empty_cache()
        tokens = min(2 * fits, LONGEST) if fails > LONGEST else (fits + fails) // 2 // 1024 * 1024
        if tokens in (fits, fails):
            break
    return fits


def _frame(row: dict[str, Any]) -> Any:
    import pandas as pd

    return pd.DataFrame([row])


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
