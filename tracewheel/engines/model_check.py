"""Models that the transformers engine would compute wrongly, and therefore refuses.

The engine applies the output embedding to the body's last hidden states itself, and gives every layer one causal mask.
A model that scales or caps its logits, or whose layers see only a window, would be sampled from another distribution
than its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tracewheel.core.errors import InputError

LOGIT_FACTORS = ("logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier_scale")
LOGIT_CAPS = ("final_logit_softcapping", "output_logit_soft_cap")
WINDOWS = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
PROBE_TOKENS = 8


def check_model(model: Any, last_logits: Callable[[torch.Tensor], torch.Tensor], longest: int | None) -> None:
    """Check that the engine gives the model's own logits.

    Args:
        model: A causal language model of transformers.
        last_logits: The engine's logits [V] after the last of the ids [T] that it is given.
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
    ids = torch.arange(PROBE_TOKENS, device=model.device) % config.vocab_size
    own = model(input_ids=ids[None], use_cache=False).logits[0, -1].float().cpu()
    tolerance = 1e-3 if model.dtype in (torch.float32, torch.float64) else 5e-2
    difference = float((last_logits(ids.cpu()) - own).abs().max())
    if not difference <= tolerance * float(own.abs().max()):
        raise InputError(
            f"{name}: the engine's logits for {PROBE_TOKENS} tokens differ from the model's own by {difference:.3g}; "
            "its layers or its output do something that the engine does not support: use another base"
        )


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
