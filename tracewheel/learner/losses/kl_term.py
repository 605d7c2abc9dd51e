"""The KL term of the loss: the divergence between the policy and its reference."""

from __future__ import annotations

from torch import Tensor

from tracewheel.config import KlConfig
from tracewheel.learner.losses.bounds import KL_RATIO_BOUND, bounded
from tracewheel.learner.losses.kl_estimators import forward_kl, k1, k2, k3
from tracewheel.learner.losses.kl_schedule import Direction


def kl_term(
    config: KlConfig, direction: Direction, logprobs: Tensor, reference: Tensor, behaviour: Tensor, mask: Tensor
) -> Tensor:
    """The divergence of each action token [B, T], unweighted; 0 where `mask` is 0.

    `direction` "reverse" estimates KL(policy || reference) by `config.estimator`, "forward"
    KL(reference || policy) by `forward_kl`, whatever the estimator.

    An unbiased estimator need not have an unbiased gradient. With `config.corrected` each term is multiplied by
    the ratio of the policy to the behaviour policy, so that the mean over the sampled tokens has the gradient of
    the true divergence: for k1, k3 (DeepSeek-V3.2, arXiv:2512.02556; the default in TRL) and the forward
    estimator the ratio carries a gradient; k2 has the right gradient by itself, and its ratio is held constant
    (Liu et al. 2025, "Rethinking KL Regularization in RLHF", arXiv:2510.01555). Without it, k3 is the plain
    term of the GRPO paper, and k1 has a gradient with mean 0, which regularises nothing. The ratio is at most e^5 = 148, as
    that in k3, so that one token cannot be the whole loss.

    Args:
        config: estimator and correction; the caller applies weight and place.
        direction: `reverse` or `forward`.
        logprobs: [B, T] of the policy, with gradients.
        reference: [B, T] of the reference policy.
        behaviour: [B, T] of the policy that sampled the tokens.
        mask: [B, T], 1 where the policy sampled the token.
    """
    masked = ~mask.bool()
    logprobs, reference, behaviour = (
        each.masked_fill(masked, 0.0) for each in (logprobs, reference.detach(), behaviour.detach())
    )
    if direction == "forward":
        divergence = forward_kl(logprobs, reference)
    else:
        divergence = {"k1": k1, "k2": k2, "k3": k3}[config.estimator](logprobs, reference)
    if config.corrected:
        ratio = bounded(logprobs - behaviour, KL_RATIO_BOUND).exp()
        held = direction == "reverse" and config.estimator == "k2"
        divergence = divergence * (ratio.detach() if held else ratio)
    return divergence.masked_fill(masked, 0.0)
