"""Log-probabilities of the tokens a policy sampled, without the logits of all others.

With a vocabulary of 150,000 the logits [B, T, V] of one micro-batch take more memory than a 7B model. Here the
transformer's body runs once, and only hidden states that predict an action token are scored against the output
embedding, tile by tile (`fused_logprobs`). The body can run on the padded batch or on one row without padding
(`packing`); the result is the same.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tracewheel.learner.batch import Batch
from tracewheel.learner.kernels.fused_logprobs import OutputEmbedding, TokenMasks, target_logprobs
from tracewheel.learner.kernels.language_model import (
    allow_packing,
    at_least_float32,
    check_logits,
    language_model,
    output_embedding,
    projection,
)
from tracewheel.learner.kernels.packing import Layout, packed_hidden, pad_rows, rows_at

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel


def action_logprobs(
    model: PreTrainedModel | PeftModel,
    batch: Batch,
    *,
    layout: Layout = "padded",
    chunk: int = 1024,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """Score the action tokens of `batch` under `model`, each row at its own temperature.

    Args:
        model: a causal language model of transformers, with or without PEFT adapters, plain or inside
            a wrapper with a `module` (DeepSpeed, DistributedDataParallel).
        batch: on the model's device. Its `temperature` [B] is what the logits are divided by.
        layout: how the tokens lie in memory while the body runs: as in the batch (`padded`), in one row without
            padding (`packed`), or in one row that holds common beginnings once (`shared_prefix`). The result is the
            same. `packed` and `shared_prefix` set the model's attention to "tracewheel". Of a trajectory with forks
            `padded` holds each row, the others each token once.
        chunk: positions projected onto the vocabulary at a time.
        entropy_gradient: whether the entropy is differentiable, as an entropy bonus needs.

    Returns:
        `logprobs` [B, T], where `logprobs[b, t]` belongs to `token_ids[b, t]`, and `entropy` [B, T] of
        the distribution that token was drawn from, in nats. Both are 0 where `action_mask` is 0, and
        float32 or better.

    Raises:
        InputError: this function cannot reproduce the model's logits or attention.
    """
    inner = language_model(model)
    check_logits(inner)
    hidden, index = _body(inner, batch, layout)
    actions = batch.action_mask.bool()
    targets = batch.token_ids[:, 1:][actions[:, 1:]]
    places = batch.at_preceding(index)[actions[:, 1:]]
    temperature = batch.temperature.unsqueeze(-1).expand(actions.shape)[:, 1:][actions[:, 1:]]
    factor = temperature.to(at_least_float32(hidden[:0]).dtype).reciprocal()
    masks = None
    if batch.masks is not None and batch.mask_numbers is not None:
        masks = TokenMasks(batch.masks, batch.mask_numbers[:, 1:][actions[:, 1:]])
    if layout == "shared_prefix":
        scored = _score_once(inner, hidden, places, targets, factor, masks, chunk, entropy_gradient)
    else:
        scored = _score(inner, rows_at(hidden, places), targets, factor, masks, chunk, entropy_gradient)
    empty = torch.zeros(actions.shape, dtype=factor.dtype, device=factor.device)
    logprobs, entropy = (empty.masked_scatter(actions, values) for values in scored)
    return logprobs, entropy


def hidden_states(model: PreTrainedModel | PeftModel, batch: Batch, layout: Layout = "padded") -> Tensor:
    """The body's last hidden states [B, T, H]; `[b, t]` is the state after `token_ids[b, t]`, 0 at padding."""
    hidden, index = _body(language_model(model), batch, layout)
    return rows_at(hidden, index).masked_fill(~batch.attention_mask.bool().unsqueeze(-1), 0.0)


def _body(inner: Any, batch: Batch, layout: Layout) -> tuple[Tensor, Tensor]:
    """Hidden states [N, H] of the batch in a layout, and the position in N of each of its tokens [B, T]."""
    body = inner.get_decoder()
    if layout == "padded":
        ids, mask, index = pad_rows(batch.token_ids, batch.attention_mask, batch.before)
        mask = mask.clone()
        mask[:, 0] = 1  # a row of padding alone attends to itself: attention over nothing is NaN
        hidden = body(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        return hidden.flatten(0, 1), index
    allow_packing(inner)
    return packed_hidden(body, batch.token_ids, batch.attention_mask, layout == "shared_prefix", batch.before)


def _score_once(
    inner: Any,
    hidden: Tensor,
    places: Tensor,
    targets: Tensor,
    factor: Tensor,
    masks: TokenMasks | None,
    chunk: int,
    entropy_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """As `_score` after the rows of `hidden` at `places` [N]; what several trajectories have in common is scored once.

    With a vocabulary of 49,152, the output embedding is a fifth of the work of a model of 135M parameters.
    """
    numbers = [] if masks is None else [masks.numbers.double()]
    asked = torch.stack([places.double(), targets.double(), factor.double(), *numbers], dim=1)  # exact in float64
    distinct, back = torch.unique(asked, dim=0, return_inverse=True)
    states = rows_at(hidden, distinct[:, 0].long())
    if masks is not None:
        masks = TokenMasks(masks.bits, distinct[:, 3].long())
    found = _score(inner, states, distinct[:, 1].long(), distinct[:, 2].to(factor.dtype), masks, chunk, entropy_gradient)
    logprobs, entropy = (rows_at(values.unsqueeze(-1), back).squeeze(-1) for values in found)
    return logprobs, entropy


def _score(
    inner: Any,
    states: Tensor,
    targets: Tensor,
    factor: Tensor,
    masks: TokenMasks | None,
    chunk: int,
    entropy_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy [N] of `targets` [N] after `states` [N, H], among the tokens that `masks` allow."""
    head, scale, cap = output_embedding(inner)
    if type(head) is nn.Linear and not cap and not (head.bias is not None and head.bias.requires_grad):
        partitioned = hasattr(head.weight, "ds_id")
        if not (partitioned and head.weight.requires_grad):
            with _gathered(head.weight, head.bias) if partitioned else nullcontext():
                embedding = OutputEmbedding(head.weight, head.bias)
                states = states.to(head.weight.dtype)  # under autocast the body's type may be another
                return target_logprobs(
                    states, embedding, targets, factor * scale, masks, chunk=chunk, entropy_gradient=entropy_gradient
                )
    if any(hasattr(parameter, "ds_id") for parameter in head.parameters()):
        chunk = max(len(states), 1)  # processes gather a partitioned weight together, so all must project equally often
    project = projection(inner)

    def score(states: Tensor, targets: Tensor, factor: Tensor, masks: TokenMasks | None) -> tuple[Tensor, Tensor]:
        logits = at_least_float32(project(states)) * factor.unsqueeze(-1)
        if masks is not None:
            logits = masks.apply(logits, slice(0, logits.shape[-1]))
        log_softmax = torch.log_softmax(logits, dim=-1)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            entropy = -(log_softmax.exp() * log_softmax).sum(-1)
        return log_softmax.gather(-1, targets.unsqueeze(-1)).squeeze(-1), entropy

    pieces = []
    for start in range(0, max(len(states), 1), chunk):
        part = slice(start, start + chunk)
        piece = states[part], targets[part], factor[part], None if masks is None else masks.part(part)
        recompute = torch.is_grad_enabled() and len(states) > chunk
        pieces.append(checkpoint(score, *piece, use_reentrant=False) if recompute else score(*piece))
    logprobs, entropy = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    return logprobs, entropy


def _gathered(*parameters: Any) -> AbstractContextManager[Any]:
    """Context in which parameters that ZeRO-3 has partitioned are whole."""
    import deepspeed

    # A tied embedding may be gathered already; gathering it twice would break the outer context.
    partitioned = [each for each in parameters if each is not None and each.ds_status.name != "AVAILABLE"]
    return deepspeed.zero.GatheredParameters(partitioned)
