"""What is added to the policy loss: the entropy bonus, and imitation of an update's own successes (VAPO, arXiv:2504.05118)."""

from __future__ import annotations

from torch import Tensor

from tracewheel.config import EntropyConfig


def entropy_weight(config: EntropyConfig, entropy_mean: float) -> float:
    """The factor on the mean entropy of the action tokens (nats), which is subtracted from the loss.

    With a floor it is 0 while the entropy is at or above the floor.
    """
    if config.floor is not None and entropy_mean >= config.floor:
        return 0.0
    return config.bonus


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
