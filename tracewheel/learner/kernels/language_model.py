"""Access to the inside of a causal language model: its body, its projection to logits, and checks of both."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tracewheel.core.errors import InputError
from tracewheel.learner.kernels.packing_check import mixing

_logits_checked: weakref.WeakSet[nn.Module] = weakref.WeakSet()
_packing_checked: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def language_model(model: Any) -> Any:
    """The transformers model inside wrappers and a `PeftModel`; its layers include the adapters."""
    while not hasattr(type(model), "get_output_embeddings") and isinstance(getattr(model, "module", None), nn.Module):
        model = model.module
    if not hasattr(model, "get_base_model"):
        return model
    if any(config.is_prompt_learning for config in model.peft_config.values()):
        raise InputError("prompt-learning adapters (prefix, prompt, p-tuning) cannot be trained here: use LoRA")
    return model.get_base_model()


def output_embedding(inner: Any) -> tuple[nn.Module, float, float | None]:
    """The output embedding, with the scale and the soft cap that some models apply to the logits."""
    config = inner.config.get_text_config()
    scale = (getattr(config, "logit_scale", None) or 1.0) / (getattr(config, "logits_scaling", None) or 1.0)
    return inner.get_output_embeddings(), scale, getattr(config, "final_logit_softcapping", None)


def projection(inner: Any) -> Callable[[Tensor], Tensor]:
    """The function from hidden states [N, H] to logits [N, V]."""
    head, scale, cap = output_embedding(inner)

    def project(states: Tensor) -> Tensor:
        logits: Tensor = head(states)
        if scale != 1.0:
            logits = logits * scale
        return torch.tanh(logits / cap) * cap if cap else logits

    return project


def check_logits(inner: Any) -> None:
    """Check that `projection` reproduces a model's own logits on a few tokens. Each model is checked once.

    Raises:
        InputError: it does not.
    """
    if inner in _logits_checked:
        return
    states: list[Tensor] = []
    device = inner.device
    ids = torch.arange(4, device=device).unsqueeze(0)
    hook = inner.get_decoder().register_forward_hook(lambda module, inputs, output: states.append(output[0]))
    # Forked, so that dropout in this pass does not shift the random stream of the training.
    with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            expected = inner(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
        finally:
            hook.remove()
        project = projection(inner)
        difference = (project(states[0]).double() - expected.double()).abs().max() if states else torch.inf
    # Both are the same product of the same states, so they differ by the rounding of scale and cap alone.
    exact = expected.dtype in (torch.float32, torch.float64)
    tolerance = 1e-4 if exact else 2.0 * torch.finfo(expected.dtype).eps
    if not difference <= tolerance * expected.abs().max():
        raise InputError(
            f"{type(inner).__name__} changes its logits after the output embedding in a way the learner does not know; "
            "it cannot be trained here"
        )
    _logits_checked.add(inner)


def allow_packing(inner: Any) -> None:
    """Set the model's attention to ours, and check that trajectories packed into one row do not mix. Done once.

    Raises:
        InputError: they mix.
    """
    if inner in _packing_checked:
        return
    from tracewheel.learner.kernels.segment_attention import NAME

    if not inner._can_set_attn_implementation():
        raise InputError(
            f"{type(inner).__name__}: its attention cannot be exchanged, which packing needs: set learner.layout to 'padded'"
        )
    training = [module for module in inner.modules() if module.training]
    inner.eval()  # dropout would make two passes differ
    try:
        found = mixing(inner, lambda: inner.set_attn_implementation(NAME))
    finally:
        for module in training:
            module.training = True
    if found:
        raise InputError(
            f"{type(inner).__name__} mixes trajectories that are packed into one row ({found}): set learner.layout to 'padded'"
        )
    _packing_checked.add(inner)


def checkpoint_activations(model: Any) -> None:
    """Keep only each layer's input for the backward pass, and recompute the layer there.

    Transformers does so only for layers in training mode, so the layers are set to it; modules inside them (dropout)
    keep their mode. The adapter active in the forward pass must still be active in the backward pass.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    inner = language_model(model)
    inner.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for module in inner.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.training = True


def at_least_float32(logits: Tensor) -> Tensor:
    """Half precision cast to float32, which a log-softmax over a vocabulary needs."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
