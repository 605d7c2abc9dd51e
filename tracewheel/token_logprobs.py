"""Log-probabilities of the tokens a policy sampled, without the logits of all the others.

At a vocabulary of 150,000 the logits [B, T, V] of one micro-batch outweigh a 7B model. Here the
transformer's body runs once, and only the hidden states that predict an action token go through the
output embedding, a chunk at a time; each chunk is computed again in the backward pass, so that no
more than one chunk's logits [chunk, V] exist at any moment.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tracewheel.batch import Batch
from tracewheel.errors import InputError

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel

_checked: weakref.WeakSet[nn.Module] = weakref.WeakSet()


def action_logprobs(
    model: PreTrainedModel | PeftModel, batch: Batch, temperature: float, chunk: int = 1024
) -> tuple[Tensor, Tensor]:
    """Score the action tokens of `batch` under `model` at `temperature`.

    Args:
        model: a causal language model of transformers, with or without PEFT adapters.
        batch: on the model's device.
        temperature: what the logits are divided by, as when sampling.
        chunk: how many positions are projected onto the vocabulary at a time.

    Returns:
        `logprobs` [B, T], where `logprobs[b, t]` belongs to `token_ids[b, t]`, and `entropy` [B, T] of
        the distribution that token was drawn from, in nats and without gradient. Both are 0 where
        `action_mask` is 0, and float32 or better.

    Raises:
        InputError: the model makes its logits in a way this function does not reproduce.
    """
    language_model = _language_model(model)
    body, project = language_model.get_decoder(), _projection(language_model)
    if language_model not in _checked:
        _check(language_model, body, project)
        _checked.add(language_model)

    def score(states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        log_softmax = torch.log_softmax(_at_least_float32(project(states)) / temperature, dim=-1)
        with torch.no_grad():
            entropy = torch.special.entr(log_softmax.exp()).sum(-1)
        return log_softmax.gather(-1, targets.unsqueeze(-1)).squeeze(-1), entropy

    hidden = body(input_ids=batch.token_ids, attention_mask=batch.attention_mask, use_cache=False).last_hidden_state
    actions = batch.action_mask.bool()
    states, targets = hidden[:, :-1][actions[:, 1:]], batch.token_ids[:, 1:][actions[:, 1:]]
    pieces = []
    for start in range(0, max(len(states), 1), chunk):
        piece = states[start : start + chunk], targets[start : start + chunk]
        recompute = torch.is_grad_enabled() and len(states) > chunk
        pieces.append(checkpoint(score, *piece, use_reentrant=False) if recompute else score(*piece))
    logprobs, entropy = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    empty = torch.zeros(batch.token_ids.shape, dtype=logprobs.dtype, device=logprobs.device)
    return empty.masked_scatter(actions, logprobs), empty.masked_scatter(actions, entropy)


def _at_least_float32(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def _language_model(model: Any) -> Any:
    """The model of transformers inside a `PeftModel`: its layers carry the adapters in place."""
    if not hasattr(model, "get_base_model"):
        return model
    if any(config.is_prompt_learning for config in model.peft_config.values()):
        raise InputError("prompt-learning adapters (prefix, prompt, p-tuning) cannot be trained here: use LoRA")
    return model.get_base_model()


def _projection(language_model: Any) -> Callable[[Tensor], Tensor]:
    """From hidden states [N, H] to logits [N, V], with the scale and soft cap some models have."""
    head, config = language_model.get_output_embeddings(), language_model.config.get_text_config()
    scale = (getattr(config, "logit_scale", None) or 1.0) / (getattr(config, "logits_scaling", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None)

    def project(states: Tensor) -> Tensor:
        logits: Tensor = head(states)
        if scale != 1.0:
            logits = logits * scale
        return torch.tanh(logits / cap) * cap if cap else logits

    return project


def _check(language_model: Any, body: nn.Module, project: Callable[[Tensor], Tensor]) -> None:
    """Refuse a model whose own logits for a few tokens are not what `project` makes of its states."""
    states: list[Tensor] = []
    device = language_model.device
    ids = torch.arange(4, device=device).unsqueeze(0)
    hook = body.register_forward_hook(lambda module, inputs, output: states.append(output[0]))
    # Forked, so that dropout in this one pass does not shift the random stream of the training.
    with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            expected = language_model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
        finally:
            hook.remove()
        difference = (project(states[0]).double() - expected.double()).abs().max() if states else torch.inf
    tolerance = 1e-4 if expected.dtype in (torch.float32, torch.float64) else 2e-2
    if not difference <= tolerance * expected.abs().max():
        raise InputError(
            f"{type(language_model).__name__} does something to its logits after the output embedding that the learner "
            "does not know; it cannot be trained here"
        )
