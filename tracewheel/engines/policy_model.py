"""Loading a policy: base model, tokenizer, and an adapter folded in or kept trainable."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tracewheel.adapters import PolicyRef, base_folder, check_adapter, policy_of
from tracewheel.chat.renderer import ChatRenderer
from tracewheel.config import PolicyConfig, RetrainConfig
from tracewheel.errors import DataError


@functools.lru_cache(maxsize=2)
def load_renderer(base: str, tool_format: str) -> ChatRenderer:
    """The base's tokenizer with its chat template.

    Raises:
        DataError: there is no such base.
        ConfigError: its tokenizer cannot hold a conversation.
    """
    return ChatRenderer(AutoTokenizer.from_pretrained(base_folder(base)), tool_format)


def load_base(config: PolicyConfig, base: str, dtype: str | None = None) -> Any:
    """A fresh causal language model of the base, in evaluation mode and in the profile's type unless another is named."""
    model = AutoModelForCausalLM.from_pretrained(
        base_folder(base), dtype=getattr(torch, dtype or config.dtype), attn_implementation="sdpa"
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


def load_policy_for_training(config: RetrainConfig, state: Path, adapter_name: str = "policy") -> Any:
    """The policy of a state folder, with what `learner.weights` says trainable and nothing else.

    With `lora`, a PEFT model whose adapter has the given name. With `full`, a plain model in float32, because
    small steps would vanish in the rounding of a lower precision; an adapter that the state holds is folded in.

    Raises:
        DataError: the folder holds no policy, or a whole model where an adapter is to be trained.
        AdapterMismatchError: it was trained from another base.
    """
    policy = policy_of(state, config.policy.base)
    if config.learner.weights == "full":
        whole = config.policy.model_copy(update={"dtype": "float32"})
        return load_for_generation(whole, policy).requires_grad_(True)
    if policy.adapter is None:
        raise DataError(
            f"{state}: holds a whole model, and learner.weights is 'lora'; set it to 'full', or start from an adapter"
        )
    from peft import PeftModel

    base = load_base(config.policy, policy.base)
    return PeftModel.from_pretrained(base, policy.adapter, adapter_name=adapter_name, is_trainable=True)
