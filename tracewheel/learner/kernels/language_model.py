"""Access to the inside of a causal language model: its body, its projection to logits, and checks of both."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tracewheel.core.errors import InputError
from tracewheel.learner.kernels.packing import packed_hidden

COMMON, LENGTH = 10, 20
# Differences are relative to what a change of a trajectory's own first token makes, on average.
OTHERS = 1e-5  # same shapes, same operations: equal to the bit, measured
OTHERS_WITH_EXPERTS = {torch.float32: 1e-3, torch.float64: 1e-3}  # an expert's rows, and so its rounding, depend on others
OTHERS_WITH_EXPERTS_HALF = 0.03
ATTENTION = {torch.float32: 1e-2, torch.float64: 1e-2}
ATTENTION_HALF = 0.5  # another attention rounds at other places, in every layer


@torch.no_grad()
def mixing(inner: Any, use_own_attention: Callable[[], None]) -> str:
    """What is wrong with packed rows of this model, in a few words; empty if nothing is.

    Args:
        inner: A causal language model of transformers, in evaluation mode, with its usual attention.
        use_own_attention: Sets its attention to the one that knows segments.
    """
    body = inner.get_decoder()
    ids, others, own = _trajectories(inner.config.get_text_config().vocab_size)
    ids, others, own = (each.to(inner.device) for each in (ids, others, own))

    def padded(rows: Tensor) -> Tensor:
        hidden: Tensor = body(input_ids=rows, attention_mask=torch.ones_like(rows), use_cache=False).last_hidden_state
        return hidden

    expected = padded(ids)
    heard = (padded(own) != expected).any(-1)
    dtype = expected.dtype
    experts = any("expert" in name for name, _ in inner.named_parameters())
    tolerance = OTHERS_WITH_EXPERTS.get(dtype, OTHERS_WITH_EXPERTS_HALF) if experts else OTHERS
    use_own_attention()
    for share_prefixes in (False, True):

        def states(rows: Tensor, share_prefixes: bool = share_prefixes) -> Tensor:
            hidden, index = packed_hidden(body, rows, torch.ones_like(rows), share_prefixes)
            return hidden[index].double()

        found = states(ids)
        by_others = (states(others) - found).norm(dim=-1)
        by_own = (states(own) - found).norm(dim=-1)
        scale = by_own.mean()
        unchanged = torch.cat([by_others[1], by_others[:, :COMMON].flatten()])
        if not unchanged.max() <= tolerance * scale:
            return "another trajectory's tokens change its states"
        if (by_own[heard] == 0.0).any():
            return "its own earlier tokens do not change its states"
        if not (found - expected).norm(dim=-1).mean() <= ATTENTION.get(dtype, ATTENTION_HALF) * scale:
            return "its states are not those of the trajectory alone"
    return ""


def _trajectories(vocabulary: int) -> tuple[Tensor, Tensor, Tensor]:
    """Three trajectories [3, T] with a common beginning, and two changes of them.

    The first change is of all but the middle one, after the tokens that part them (which order the packed row); the
    second is of the first token of each.
    """
    random = torch.Generator().manual_seed(0)
    ids, others = (torch.randint(vocabulary, (3, LENGTH), generator=random) for _ in range(2))
    ids[:, :COMMON] = ids[0, :COMMON]
    ids[:, COMMON] = torch.arange(1, 4) * (vocabulary - 1) // 4
    others[:, : COMMON + 1], others[1] = ids[:, : COMMON + 1], ids[1]
    own = ids.clone()
    own[:, 0] = (own[:, 0] + vocabulary // 2) % vocabulary
    return ids, others, own


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
