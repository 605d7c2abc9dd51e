"""Imitation of an update's own successes, added to the policy loss (VAPO, arXiv:2504.05118)."""

from __future__ import annotations

from torch import Tensor


def positive_example_loss(logprobs: Tensor, mask: Tensor, succeeded: Tensor, tokens: int) -> Tensor:
    """The negative log-likelihood of the action tokens of successes, summed over a micro-batch and divided by `tokens`.

    Args:
        logprobs: [B, T] of the policy, with gradients.
        mask: [B, T], 1 where the policy sampled the token.
        succeeded: [B] bool.
        tokens: Action tokens of all successes of the optimiser step; with 0 the loss is 0.
    """
    kept = mask.bool() & succeeded[:, None]
    return -logprobs.masked_fill(~kept, 0.0).sum() / max(tokens, 1)
