"""Log-probability and entropy under an output embedding, without all logits in memory.

The logits of N tokens are computed one tile [chunk, COLUMNS] at a time and folded into running sums, as in
attention kernels (Dao et al. 2022, "FlashAttention", arXiv:2205.14135, with the output embedding W as both keys
and values). One of the sums is the mean embedding under the distribution, `mean[i] = sum_v p[i, v] W[v]`, from
which the backward pass needs no logits:

    d logprob[i] / d state[i] = (W[target[i]] - mean[i]) / temperature[i]

is one vector per token, for any loss. A step takes two products with W, where recomputing the logits takes three,
and memory for one tile.

Every product is summed and stored in float32, because a sure model has logits about 20, where bfloat16 numbers are 0.125
apart. A GPU multiplies half precision so; a CPU has no such product in torch, so tiles of states and weight are cast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from tracewheel.policy.allowed_tokens import NEVER, forbidden

COLUMNS = {"cpu": 2048, "cuda": 16384}


@dataclass(frozen=True)
class OutputEmbedding:
    """`weight` [V, H], and `bias` [V] without gradient, or None.

    If the weight requires a gradient, the backward pass computes the logits once more.
    """

    weight: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True)
class TokenMasks:
    """Masks of allowed tokens: `bits` [M, W] int32, and `numbers` [N] of each token's, -1 where every token could come."""

    bits: Tensor
    numbers: Tensor

    def part(self, part: slice) -> TokenMasks:
        """The masks of some tokens."""
        return TokenMasks(self.bits, self.numbers[part])

    def apply(self, logits: Tensor, columns: slice) -> Tensor:
        """Logits [N, C] of the vocabulary's `columns` under the masks."""
        held = (self.numbers >= 0).unsqueeze(-1)
        return logits.masked_fill(forbidden(self.bits, columns)[self.numbers.clamp(min=0)] & held, NEVER)


def target_logprobs(
    states: Tensor,
    embedding: OutputEmbedding,
    targets: Tensor,
    factor: Tensor,
    masks: TokenMasks | None = None,
    *,
    chunk: int = 1024,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """Score `targets` under softmax(factor * (states @ weight.T + bias)).

    Args:
        states: [N, H], in the type of the weight.
        embedding: Weight and bias.
        targets: [N] token ids.
        factor: [N] multiplied with the logits: one over the temperature; float32 or better.
        masks: Of the tokens that could come at each place; None: every token could. Those that could not have no part in the
            result or its gradient.
        chunk: tokens per tile of logits.
        entropy_gradient: whether the entropy is differentiable; costs a third product with the weight.

    Returns:
        logprobs [N] and entropy [N] in nats, in the type of `factor`.
    """
    logprobs, entropy = _TargetLogprobs.apply(
        states, embedding.weight, embedding.bias, targets, factor, masks, chunk, entropy_gradient
    )
    return logprobs, entropy if entropy_gradient else entropy.detach()


class _TargetLogprobs(torch.autograd.Function):
    # Autograd tracks only tensors that are arguments of their own, so `forward` takes no record.
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        factor: Tensor,
        masks: TokenMasks | None,
        chunk: int,
        entropy_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        needs_states, needs_weight = ctx.needs_input_grad[:2]
        logprobs, entropy, normaliser = (torch.empty_like(factor) for _ in range(3))
        slopes = torch.empty_like(states) if needs_states else None
        entropy_slopes = torch.empty_like(states) if needs_states and entropy_gradient else None
        tiles = _Tiles(weight, bias, min(chunk, len(states)), factor.dtype)
        for start in range(0, len(states), chunk):
            part = slice(start, start + chunk)
            tiles.masks = None if masks is None else masks.part(part)
            target_rows = weight[targets[part]].to(factor.dtype)
            target_logits = (target_rows * states[part]).sum(-1)
            if bias is not None:
                target_logits += bias[targets[part]]
            target_logits *= factor[part]
            sums = _fold(tiles, tiles.cast(states[part]), factor[part], target_logits, needs_states, entropy_slopes is not None)
            normaliser[part] = sums.maximum + sums.total.log()
            logprobs[part] = target_logits - normaliser[part]
            mean_logit = sums.logit / sums.total
            entropy[part] = sums.total.log() - mean_logit
            if slopes is None:
                continue
            mean = sums.embedding / sums.total.unsqueeze(-1)
            slopes[part] = (target_rows - mean) * factor[part].unsqueeze(-1)
            if entropy_slopes is not None:
                product = sums.logit_embedding / sums.total.unsqueeze(-1)
                entropy_slopes[part] = (mean * mean_logit.unsqueeze(-1) - product) * factor[part].unsqueeze(-1)
        kept = (states, weight, bias, targets, factor, normaliser, entropy) if needs_weight else ()
        ctx.save_for_backward(slopes, entropy_slopes, *kept)
        ctx.chunk, ctx.masks = chunk, masks
        return logprobs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_logprob: Tensor, by_entropy: Tensor) -> tuple[Tensor | None, ...]:
        slopes, entropy_slopes, *kept = ctx.saved_tensors
        by_states = by_weight = None
        if slopes is not None:
            by_states = slopes * by_logprob.unsqueeze(-1).to(slopes.dtype)
            if entropy_slopes is not None:
                by_states += entropy_slopes * by_entropy.unsqueeze(-1).to(slopes.dtype)
        if kept:
            by_weight = _weight_gradient(by_logprob, by_entropy, _Saved(*kept), ctx.masks, ctx.chunk)
        return by_states, by_weight, None, None, None, None, None, None


class _Tiles:
    """Tiles of logits, some tokens by some columns of the vocabulary, in one reused buffer."""

    def __init__(self, weight: Tensor, bias: Tensor | None, rows: int, dtype: torch.dtype) -> None:
        self._weight, self.bias = weight, bias
        self.masks: TokenMasks | None = None  # of the tokens whose tiles are asked for
        self.factors = weight.dtype if weight.is_cuda else dtype  # the type of the factors of products
        columns = min(COLUMNS.get(weight.device.type, 2048), len(weight))
        self.parts = [slice(start, min(start + columns, len(weight))) for start in range(0, len(weight), columns)]
        self.memory = torch.empty(rows * columns, dtype=dtype, device=weight.device)

    def cast(self, values: Tensor) -> Tensor:
        return values.to(self.factors)

    def weight(self, part: slice) -> Tensor:
        return self.cast(self._weight[part])

    def logits(self, states: Tensor, weight: Tensor, factor: Tensor, part: slice) -> Tensor:
        """The tile [n, columns] for `states` [n, H] and `weight` [columns, H], both cast."""
        rows, columns = len(states), len(weight)
        tile = self.memory[: rows * columns].view(rows, columns)
        _multiply(states, weight.t(), tile)
        if self.bias is not None:
            tile += self.bias[part]
        tile.mul_(factor.unsqueeze(-1))
        return tile if self.masks is None else self.masks.apply(tile, part)


@dataclass
class _Sums:
    """Running sums over the vocabulary for each of n tokens, weighted by exp(logit - maximum).

    `total` [n] sums the weights, `logit` [n] logit - maximum, `embedding` [n, H] the rows of the output embedding,
    and `logit_embedding` [n, H] the product of both.
    """

    maximum: Tensor
    total: Tensor
    logit: Tensor
    embedding: Tensor
    logit_embedding: Tensor


def _fold(tiles: _Tiles, states: Tensor, factor: Tensor, lowest: Tensor, with_embedding: bool, with_product: bool) -> _Sums:
    """One pass over the vocabulary. `lowest` [n] is some logit of each token: the initial maximum."""
    nothing = factor.new_zeros(states.shape if with_embedding else (0, 1))
    sums = _Sums(lowest.clone(), torch.zeros_like(lowest), torch.zeros_like(lowest), nothing, nothing[:0])
    if with_product:
        sums.logit_embedding = torch.zeros_like(nothing)
    # The mean logit follows from the mean embedding, which saves a pass over the tile, without a bias and unless the
    # embedding's weights are rounded.
    rounded = tiles.factors != factor.dtype
    with_logit = with_product or not with_embedding or tiles.bias is not None or rounded
    for part in tiles.parts:
        weight = tiles.weight(part)
        logits = tiles.logits(states, weight, factor, part)
        maximum = torch.maximum(sums.maximum, logits.amax(-1))
        logits -= maximum.unsqueeze(-1)
        drop = sums.maximum - maximum
        shrink = drop.exp()
        weights = logits.exp() if with_logit else logits.exp_()
        if with_logit:
            logits *= weights
            sums.logit = (sums.logit + drop * sums.total) * shrink + logits.sum(-1)
        if with_product:
            sums.logit_embedding.addcmul_(sums.embedding, drop.unsqueeze(-1)).mul_(shrink.unsqueeze(-1))
            _accumulate(sums.logit_embedding, logits, weight)
        if with_embedding:
            sums.embedding *= shrink.unsqueeze(-1)
            _accumulate(sums.embedding, weights, weight)
        sums.total = sums.total * shrink + weights.sum(-1)
        sums.maximum = maximum
    if not with_logit:
        sums.logit = (states * sums.embedding).sum(-1) * factor - sums.maximum * sums.total
    return sums


@dataclass(frozen=True)
class _Saved:
    """The tensors of the forward pass that the weight's gradient needs."""

    states: Tensor
    weight: Tensor
    bias: Tensor | None
    targets: Tensor
    factor: Tensor
    normaliser: Tensor
    entropy: Tensor


def _weight_gradient(by_logprob: Tensor, by_entropy: Tensor, saved: _Saved, masks: TokenMasks | None, chunk: int) -> Tensor:
    """The gradient of `weight` [V, H] from those of the results [N]; recomputes the logits tile by tile."""
    states, weight, factor = saved.states, saved.weight, saved.factor
    gradient = torch.zeros(weight.shape, dtype=factor.dtype, device=weight.device)
    tiles = _Tiles(weight, saved.bias, min(chunk, len(states)), factor.dtype)
    with_entropy = bool(by_entropy.any())
    for start in range(0, len(states), chunk):
        rows = slice(start, start + chunk)
        cast = tiles.cast(states[rows])
        tiles.masks = None if masks is None else masks.part(rows)
        for part in tiles.parts:
            logits = tiles.logits(cast, tiles.weight(part), factor[rows], part)
            logprobs = logits.sub_(saved.normaliser[rows].unsqueeze(-1))
            by_logit = by_logprob[rows].unsqueeze(-1)
            if with_entropy:
                by_logit = by_logit + by_entropy[rows].unsqueeze(-1) * (logprobs + saved.entropy[rows].unsqueeze(-1))
            by_logit = logprobs.exp_().mul_(by_logit).mul_(-factor[rows].unsqueeze(-1))
            _accumulate(gradient[part], by_logit.t(), cast)
        gradient.index_add_(0, saved.targets[rows], states[rows].to(factor.dtype) * (by_logprob * factor)[rows].unsqueeze(-1))
    return gradient.to(weight.dtype)


def _multiply(left: Tensor, right: Tensor, out: Tensor) -> None:
    """`out` = left @ right, in half precision (on a GPU) summed in the type of `out`."""
    if left.dtype == out.dtype:
        torch.mm(left, right, out=out)
    else:
        torch.mm(left, right, out_dtype=out.dtype, out=out)


def _accumulate(total: Tensor, left: Tensor, right: Tensor) -> None:
    """`total` += left @ right, with `left` cast to the type of `right`."""
    if right.dtype == total.dtype:
        total.addmm_(left, right)
    else:
        torch.addmm(total, left.to(right.dtype), right, out_dtype=total.dtype, out=total)
