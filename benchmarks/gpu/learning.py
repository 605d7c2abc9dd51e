"""The learner on a GPU: gradients beside the CPU's, tokens/s and MFU by context and layout, peak memory, time by kernel."""

from __future__ import annotations

import inspect
import time
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from learner_workload import Workload, policy, trajectories

from tracewheel.config import ClipConfig
from tracewheel.learner.batch import Batch, micro_batches, step_totals
from tracewheel.learner.kernels.language_model import checkpoint_activations
from tracewheel.learner.kernels.packing import Layout, pack
from tracewheel.learner.kernels.token_logprobs import action_logprobs
from tracewheel.learner.losses.aggregation import StepTotals
from tracewheel.learner.losses.policy import PolicyTokens, policy_loss
from tracewheel.policy.lora_products import fuse_adapters

QWEN3_4B = Workload(
    vocabulary=151_936, hidden=2560, layers=36, intermediate=9728, heads=32, key_heads=8, head_dim=128, group=8, prompts=1
)
SMALL = Workload(
    vocabulary=512, hidden=64, layers=2, intermediate=96, heads=4, key_heads=2, head_dim=16, group=3, tokens=256, action=24,
    observation=16,
)  # fmt: skip
PARITY = replace(SMALL, vocabulary=32_000, hidden=512, layers=4, intermediate=1408, heads=8, head_dim=64, tokens=1024)
# Dense bfloat16 peak from the data sheets, in FLOP/s, for the MFU.
PEAK = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12}
TILE = 1024 * 16_384 * 4  # bytes of logits that exist at once
LAYER_BYTES = 3.27e9 / 16_384  # a token in one layer computed again, at Qwen3-4B's shape (`benchmarks/layer_memory.py`)
TURNS = 8  # of a forked trajectory: each cuts the thinking of the one before


def parity(device: str, small: bool) -> dict[str, Any]:
    """The gradient of one update in each layout and type, beside the CPU's in float32: cosine and relative distance."""
    workload = SMALL if small else PARITY
    found: dict[str, Any] = {}
    for layout in ("padded", "packed", "shared_prefix", "forks"):
        expected = _gradient(workload, layout, "cpu", torch.float32)
        for dtype in (torch.float32, torch.bfloat16):
            given = _gradient(workload, layout, device, dtype)
            found[f"{layout} {str(dtype).removeprefix('torch.')}"] = {
                "cosine": float(torch.nn.functional.cosine_similarity(given, expected, dim=0)),
                "distance": float((given - expected).norm() / expected.norm()),
            }
    return found


def throughput(device: str, small: bool, seconds: float) -> list[dict[str, Any]]:
    """Tokens/s, MFU and peak memory of updates at Qwen3-4B's shape; ends with the point that begins before the time is over."""
    workload = SMALL if small else QWEN3_4B
    model, optimizer = _model(workload, device, torch.float32 if small else torch.bfloat16)
    began, points = time.monotonic(), []
    for tokens in (256,) if small else (16_384, 65_536):
        for layout in ("packed", "shared_prefix", "forks"):
            if time.monotonic() - began > seconds:
                points.append({"layout": layout, "tokens": tokens, "error": "no time left"})
                continue
            try:
                points.append(_point(model, optimizer, replace(workload, tokens=tokens), layout, device))
            except Exception as error:  # the other points go on
                points.append({"layout": layout, "tokens": tokens, "error": f"{type(error).__name__}: {error}"[:400]})
                optimizer.zero_grad()
                if device == "cuda":
                    torch.cuda.empty_cache()
    return points


def trl(device: str, small: bool) -> dict[str, Any]:
    """TRL's update on padded rows, one at a time, beside ours on packed ones: equal trajectories, each's second step."""
    import learner_sides

    workload = SMALL if small else replace(QWEN3_4B, tokens=16_384, group=2, dtype="bfloat16")
    model, optimizer = _model(workload, device, getattr(torch, workload.dtype))
    found = {"ours": _point(model, optimizer, workload, "packed", device)}
    del model, optimizer
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    table = trajectories(workload)
    setting = {"rows": 1, "checkpointing": True, "steps": 2, "device": device}
    meter, _, _ = learner_sides.trl(workload, table, setting)
    peak = torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None
    tokens_per_s = sum(map(len, table["token_ids"])) / meter.wall
    found["trl"] = {"tokens": workload.tokens, "wall_s": meter.wall, "tokens_per_s": tokens_per_s, "peak_gb": peak}
    return found | {"times_as_fast": found["ours"]["tokens_per_s"] / tokens_per_s}


def kernels(device: str, small: bool) -> list[dict[str, Any]]:
    """The kernels that an update of six layers spends most time in."""
    from torch.profiler import ProfilerActivity, profile

    workload = SMALL if small else replace(QWEN3_4B, layers=6, tokens=16_384, group=2)
    model, optimizer = _model(workload, device, torch.float32 if small else torch.bfloat16)
    batches = _batches(workload, "packed", device)
    _update(model, optimizer, batches, "packed")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with profile(activities=activities) as found:
        _update(model, optimizer, batches, "packed")
        _wait(device)
    name = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    rows = sorted(found.key_averages(), key=lambda row: -getattr(row, name))[:25]
    total = sum(getattr(row, name) for row in found.key_averages())
    return [
        {"kernel": row.key[:100], "ms": getattr(row, name) / 1e3, "share": getattr(row, name) / total, "calls": row.count}
        for row in rows
    ]


def older_torch() -> None:
    """Give `varlen_attn` of a torch before 2.13 grouped heads: keys and values repeated."""
    from torch.nn.attention import varlen

    theirs = varlen.varlen_attn
    if "enable_gqa" in inspect.signature(theirs).parameters:
        return

    def repeated(query: Any, key: Any, value: Any, *given: Any, enable_gqa: bool = False, **more: Any) -> Any:
        times = query.shape[1] // key.shape[1]
        if enable_gqa:
            key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
        if "window_size" not in inspect.signature(theirs).parameters:
            more = {name: each for name, each in more.items() if name != "window_size"} | {"is_causal": True}
        return theirs(query, key, value, *given, **more)

    varlen.varlen_attn = repeated


def forked(workload: Workload) -> pd.DataFrame:
    """One trajectory of `tokens` tokens in turns; each follows the one before without the end of its thinking."""
    (row,) = trajectories(replace(workload, group=1, prompts=1)).to_dict("records")
    length = len(row["token_ids"])
    step = length // TURNS
    row["forks"] = [[turn * step, turn * step - 1 - step // 8] for turn in range(1, TURNS)]
    return pd.DataFrame([row])


def _layout(name: str) -> Layout:
    return "packed" if name == "forks" else name  # type: ignore[return-value]


def _model(workload: Workload, device: str, dtype: torch.dtype) -> tuple[Any, Any]:
    with torch.device(device):
        model = fuse_adapters(policy(workload, dtype))
    checkpoint_activations(model)
    return model, torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-4)


def _batches(workload: Workload, name: str, device: str) -> list[Batch]:
    table = forked(workload) if name == "forks" else trajectories(workload)
    table["logprobs"] = [[0.0] * len(ids) for ids in table["token_ids"]]
    signs = [1.0 if number % 2 == 0 else -0.5 for number in range(len(table))]
    cap = max(16_384, workload.tokens)
    return [batch.to(device) for batch in micro_batches(table, signs, cap, layout=_layout(name))]


def _gradient(workload: Workload, name: str, device: str, dtype: torch.dtype) -> torch.Tensor:
    """Of the adapter, as one vector of float64 on the CPU; equal weights on every device and in every type."""
    model = policy(workload, torch.float32)  # made on the CPU: another device draws other numbers
    model = model.to(device)
    for parameter in model.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)
    _backward(fuse_adapters(model), _batches(workload, name, device), name)
    return torch.cat([each.grad.flatten().double().cpu() for each in model.parameters() if each.grad is not None])


def _backward(model: Any, batches: list[Batch], name: str) -> None:
    totals: StepTotals = step_totals(batches)
    for batch in batches:
        logprobs, _ = action_logprobs(model, batch, layout=_layout(name))
        tokens = PolicyTokens(logprobs, logprobs.detach(), batch.advantages, batch.action_mask)
        policy_loss(ClipConfig(), tokens, totals, "token").loss.backward()


def _update(model: Any, optimizer: Any, batches: list[Batch], name: str) -> None:
    _backward(model, batches, name)
    optimizer.step()
    optimizer.zero_grad()


def _point(model: Any, optimizer: Any, workload: Workload, name: str, device: str) -> dict[str, Any]:
    batches = _batches(workload, name, device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for _ in range(2):  # the first run warms up
        _wait(device)
        start = time.perf_counter()
        _update(model, optimizer, batches, name)
        _wait(device)
        wall = time.perf_counter() - start
    tokens = sum(int(batch.attention_mask.sum()) for batch in batches)
    device_name = torch.cuda.get_device_name() if device == "cuda" else device
    peak = next((value for key, value in PEAK.items() if key in device_name), None)
    flop, processed = _work(model, batches, name, workload)
    return {
        "layout": name,
        "tokens": workload.tokens,
        "wall_s": wall,
        "tokens_per_s": tokens / wall,
        "processed_tokens_per_s": sum(processed) / wall,
        "mfu": flop / wall / peak if peak else None,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else None,
        "arithmetic_gb": _memory(model, workload, max(processed)) / 1e9,
    }


def _work(model: Any, batches: list[Batch], name: str, workload: Workload) -> tuple[float, list[int]]:
    """FLOP of the forward and backward pass, and the tokens that each batch computes.

    Frozen weights have no gradient, and checkpointing's recomputation is left out. Tokens that a layout skips (shared
    beginnings) do not count, so the MFU is that of the work done.
    """
    body = sum(each.numel() for key, each in model.named_parameters() if "layers" in key)
    width = workload.heads * (workload.head_dim or workload.hidden // workload.heads)
    total, processed = 0.0, []
    for batch in batches:
        share = name == "shared_prefix"
        segments = pack(batch.token_ids, batch.attention_mask, batch.before, share_prefixes=share).segments
        # Query and key, and the sum over values: 2 FLOP each for a pair and a channel; backward twice that.
        pairs = sum(each.length * (each.seen_length - each.length) + each.length**2 / 2 for each in segments)
        processed.append(sum(each.length for each in segments))
        total += 4.0 * body * processed[-1] + 12.0 * pairs * width * workload.layers
        total += 4.0 * workload.vocabulary * workload.hidden * int(batch.action_mask.sum())
    return total, processed


def _memory(model: Any, workload: Workload, tokens: int) -> float:
    """Bytes of an update, as the header of `configs/qwen3-4b-1gpu.yaml` adds them up, without a reference policy."""
    frozen = sum(each.numel() * each.element_size() for each in model.parameters() if not each.requires_grad)
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    kept = tokens * workload.hidden * workload.layers * 2
    layer = tokens * LAYER_BYTES * workload.intermediate / QWEN3_4B.intermediate
    return frozen + trained * 16 + kept + layer + TILE


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
