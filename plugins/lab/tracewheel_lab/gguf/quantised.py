"""Weights rounded to a few bits, and what that costs: success on the held-out tasks beside that of the policy as it was gated.

GGUF's Q8_0 and Q4_0 share a scale among 32 neighbours of a row. What a file holds is played as plain weights, so tokens and
templates are the policy's own.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracewheel import DataError, EvaluateSections, PolicyRef, decide_gate, evaluate_split, read_json, write_json

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from tracewheel import RetrainConfig

TYPES = {"q8_0": "MOSTLY_Q8_0", "q4_0": "MOSTLY_Q4_0"}
BLOCK = 32
HELD_OUT = "held_out"
WEIGHTS, PROBE = "model.safetensors", "probe.json"  # the probe holds the log-probabilities before rounding


def rounded(tensor: Tensor, kind: str) -> np.ndarray | None:
    """The blocks of a matrix as the file holds them; None of a tensor that stays as it is."""
    import gguf

    if tensor.ndim != 2 or tensor.shape[1] % BLOCK:
        return None
    return gguf.quants.quantize(tensor.float().contiguous().numpy(), gguf_type(kind))


def gguf_type(kind: str) -> Any:
    """GGUF's own name of a type in `TYPES`."""
    import gguf

    return getattr(gguf.GGMLQuantizationType, kind.upper())


def write_rounded(folder: Path, out: Path, kind: str) -> None:
    """Copy a model's folder with the numbers that a quantised file of it holds."""
    import gguf
    import torch
    from safetensors.torch import load_file, save_file

    out.mkdir()
    weights: dict[str, Tensor] = {}
    for file in sorted(folder.iterdir()):
        if file.suffix == ".safetensors":
            weights |= load_file(file)
        elif file.is_file() and file.name != PROBE and not file.name.endswith(".index.json"):
            shutil.copyfile(file, out / file.name)
    for name, tensor in weights.items():
        if (blocks := rounded(tensor, kind)) is not None:
            plain = torch.from_numpy(gguf.quants.dequantize(blocks, gguf_type(kind)))
            weights[name] = plain.to(tensor.dtype).view_as(tensor).contiguous()
    save_file(weights, out / WEIGHTS, metadata={"format": "pt"})


def gate_rounded(config: RetrainConfig, folder: Path, kind: str, curated: Path, gated: Path) -> dict[str, Any]:
    """Play the held-out tasks with the rounded weights, and compare with the evaluation of the policy that was gated.

    The gate is asked the other way round: it refuses the file where it would promote the policy over it.

    Args:
        config: The profile.
        folder: The merged weights.
        kind: One of `TYPES`.
        curated: Output of curation.
        gated: Output of `tracewheel evaluate` on the held-out tasks, of the policy itself.

    Raises:
        DataError: there is no such evaluation, or the file is proven worse than the policy.
    """
    if not (gated / "results.parquet").is_file():
        raise DataError(f"{gated}: holds no results.parquet; give the output of `tracewheel evaluate` on the held-out tasks")
    with tempfile.TemporaryDirectory(prefix="tracewheel-gguf-") as place:
        model, out = Path(place) / "model", Path(place) / "evaluation"
        write_rounded(folder, model, kind)
        policy = config.policy.model_copy(update={"base": str(model)})
        found = evaluate_split(
            EvaluateSections.of(config.model_copy(update={"policy": policy})), PolicyRef(str(model)), curated, HELD_OUT, out
        )
        level = 1 - config.gate.confidence  # one test by itself, which spends none of the work folder's error budget
        # No `false_accepts`: it asks more before the policy counts as better, so worse files would pass.
        verdict = decide_gate(config.gate, gated, out, None, baseline_name=kind, level=level)
    before = read_json(gated / "evaluation.json")
    result = {
        "before": {mode: before[mode]["rate"] for mode in ("greedy", "sampled")},
        "after": {mode: found[mode]["rate"] for mode in ("greedy", "sampled")},
        "lost": verdict.difference,
        "interval": verdict.interval,
        "pairs": verdict.pairs,
    }
    if verdict.promoted:
        raise DataError(
            f"{kind}: rounding costs {verdict.difference:.1%} of success on {verdict.pairs} held-out tasks, which is proven: "
            "take --type q8_0, or leave the weights as they are (no --type)"
        )
    return result


def card_section(kind: str, result: dict[str, Any]) -> str:
    """What the model card says of it."""
    rows = [("as it was gated", result["before"]), (kind, result["after"])]
    table = "".join(f"| {name} | {_percent(rates['greedy'])} | {_percent(rates['sampled'])} |\n" for name, rates in rows)
    low, high = result["interval"] or (None, None)
    return (
        f"\n## Rounded to {kind}\n\nSuccess on {result['pairs']} held-out tasks:\n\n| weights | greedy | sampled |\n"
        f"|---|---:|---:|\n{table}\nLost: {_percent(result['lost'])} ({_percent(low)} to {_percent(high)}).\n"
    )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}%"


def write_card(folder: Path, out: Path, kind: str, result: dict[str, Any]) -> None:
    """Write `OUT.md`, the merged weights' card with the file's own success, and `OUT.json`."""
    card = folder / "README.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else f"# {out.stem}\n"
    out.with_suffix(".md").write_text(text.rstrip("\n") + "\n" + card_section(kind, result), encoding="utf-8")
    write_json(out.with_suffix(".json"), {"type": kind, **result})
