"""The critic's loss (Schulman et al. 2017, with the clip of the PPO baselines), and its explained variance."""

from __future__ import annotations

import torch
from torch import Tensor

from tracewheel.learner.losses.aggregation import StepTotals, aggregate


def value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, totals: StepTotals, clip: float | None
) -> Tensor:
    """Half the squared error of the values, per action token of the step.

    With `clip` it is the larger of that error and the error of the value clamped to within `clip` of the old
    value: a value that has moved further towards its return gets no gradient.

    Args:
        values: [B, T] of the critic, with gradients.
        old_values: [B, T], from which the advantages were computed.
        returns: [B, T], the targets.
        mask: [B, T], 1 at action tokens.
        totals: of the whole optimiser step.
        clip: how far a value may move in an update, in units of the return; None for no limit.
    """
    masked = ~mask.bool()
    values, old, returns = (each.masked_fill(masked, 0.0) for each in (values, old_values.detach(), returns.detach()))
    errors = (values - returns).square()
    if clip is not None:
        held = old + (values - old).clamp(-clip, clip)
        errors = torch.maximum(errors, (held - returns).square())
    return aggregate(0.5 * errors, mask, "token", totals)


def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> float | None:
    """1 - Var(returns - values) / Var(returns) over the tokens where `mask` is 1.

    1 is a perfect critic, 0 as good as a constant, negative worse. None when the returns do not vary.
    """
    kept = mask.bool()
    targets, errors = returns[kept].double(), (returns - values.detach())[kept].double()
    if len(targets) < 2 or float(targets.var()) <= 1e-12:
        return None
    return 1.0 - float(errors.var() / targets.var())
