"""Loading a policy: base model, tokenizer, and an adapter folded in or kept trainable."""

from __future__ import annotations

import functools
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tracewheel.adapters import PolicyRef, base_folder, check_adapter
from tracewheel.chat.renderer import ChatRenderer
from tracewheel.config import PolicyConfig


@functools.lru_cache(maxsize=2)
def load_renderer(base: str, tool_format: str) -> ChatRenderer:
    """The base's tokenizer with its chat template.

    Raises:
        DataError: there is no such base.
        ConfigError: its tokenizer cannot hold a conversation.
    """
    return ChatRenderer(AutoTokenizer.from_pretrained(base_folder(base)), tool_format)


def load_base(config: PolicyConfig, base: str) -> Any:
    """A fresh causal language model of the base, in evaluation mode."""
    model = AutoModelForCausalLM.from_pretrained(
        base_folder(base), dtype=getattr(torch, config.dtype), attn_implementation="sdpa"
    )
    return model.to(config.device).eval()


def load_for_generation(config: PolicyConfig, policy: PolicyRef) -> Any:
    """The policy as one plain model: in float32 the adapter is folded into the weights.

    In lower precision folding would round the adapter away, so it stays beside them.

    Raises:
        AdapterMismatchError: the adapter was made for another base.
    """
    model = load_base(config, policy.base)
    if policy.adapter is None:
        return model
    from peft import PeftModel

    check_adapter(policy.adapter, policy.base)
    adapted = PeftModel.from_pretrained(model, policy.adapter)
    return (adapted.merge_and_unload() if config.dtype == "float32" else adapted.get_base_model()).eval()
