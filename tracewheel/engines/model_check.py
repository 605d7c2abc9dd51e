"""Models that the transformers engine would compute wrongly, and therefore refuses.

The engine applies the output embedding to the body's last hidden states itself, and gives every layer one causal mask.
A model that scales or caps its logits, or whose layers see only a window, would be sampled from another distribution
than its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from tracewheel.core.errors import InputError

LOGIT_FACTORS = ("logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier_scale")
LOGIT_CAPS = ("final_logit_softcapping", "output_logit_soft_cap")
WINDOWS = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
PROBE_LENGTHS = tuple(range(3, 33, 2))
# How far the engine's logits may be from the model's own at the median position of the probe, as a share of their spread
# over the vocabulary, and by which factor they may be scaled on average. In bfloat16 a model's own attention
# implementations differ by 0.03 and 0.002 (SmolLM2); at single positions rounding can change all logits.
TOLERANCES = {
    torch.float32: (1e-3, 1e-3),
    torch.float64: (1e-3, 1e-3),
    torch.bfloat16: (0.08, 0.02),
    torch.float16: (0.05, 0.02),
}


def check_model(model: Any, last_logits: Callable[[list[list[int]]], torch.Tensor], longest: int | None) -> None:
    """Check that the engine gives the model's own logits.

    Args:
        model: A causal language model of transformers.
        last_logits: The engine's logits [R, V] after the last of each of R rows of ids.
        longest: The longest conversation in tokens; None if unknown.

    Raises:
        InputError: the logits differ, according to the model's config or on a short probe.
    """
    config, name = model.config.get_text_config(), type(model).__name__
    for key in LOGIT_FACTORS:
        if (factor := getattr(config, key, None)) not in (None, 1):
            raise InputError(f"{name} multiplies its logits ({key} = {factor}), and the engine does not: use another base")
    for key in LOGIT_CAPS:
        if cap := getattr(config, key, None):
            raise InputError(f"{name} caps its logits ({key} = {cap}), and the engine does not: use another base")
    _check_windows(config, name, longest)
    rng = random.Random("probe")
    # A conversation is never longer than `longest`, and a window may be as short.
    lengths = [length for length in PROBE_LENGTHS if longest is None or length <= longest] or PROBE_LENGTHS[:1]
    ids = [rng.randrange(config.vocab_size) for _ in range(max(lengths))]
    own = model(input_ids=torch.tensor([ids], device=model.device), use_cache=False).logits[0]
    own = own[torch.tensor(lengths) - 1].float().cpu()
    found = last_logits([ids[:length] for length in lengths]).cpu()
    difference, factor = _compare(found, own)
    most, scaled = TOLERANCES.get(model.dtype, TOLERANCES[torch.bfloat16])
    if not (difference <= most and abs(factor - 1.0) <= scaled):
        raise InputError(
            f"{name}: the engine's logits for {len(lengths)} prompts differ from the model's own by {difference:.3g} of "
            f"their spread, and are {factor:.3g} times as large (at most {most:g} and {scaled:g} from 1 are rounding); "
            "its layers or its output do something that the engine does not support: use another base"
        )


def _compare(found: torch.Tensor, own: torch.Tensor) -> tuple[float, float]:
    """Of logits [R, V] and the model's own: the median difference as a share of their spread, and the median factor."""
    found, own = (logits.double() - logits.double().mean(-1, keepdim=True) for logits in (found, own))
    spread = own.square().sum(-1).clamp(min=1e-30)
    shares = ((found - own).square().sum(-1) / spread).sqrt()
    return float(shares.median()), float(((found * own).sum(-1) / spread).median())


def _check_windows(config: Any, name: str, longest: int | None) -> None:
    kinds = set(getattr(config, "layer_types", None) or ["sliding_attention"])
    unknown = sorted(kinds - {"full_attention", *WINDOWS})
    if unknown:
        raise InputError(f"{name} has layers of {', '.join(unknown)}; the engine caches only keys and values: use another base")
    if getattr(config, "use_sliding_window", True) is False:
        return
    for kind, key in WINDOWS.items():
        window = getattr(config, key, None) if kind in kinds else None
        if window and (longest is None or longest > window):
            raise InputError(
                f"{name} has layers that see only the last {window} tokens ({key}), and the engine's see all: "
                f"set rollout.max_tokens to at most {window}, or use another base"
            )
