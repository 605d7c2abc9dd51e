"""V-trace (Espeholt et al. 2018, "IMPALA", arXiv:1802.01561): values of the policy from another policy's actions."""

from __future__ import annotations

import math

from torch import Tensor

from tracewheel.config import GaeAdvantageConfig
from tracewheel.learner.advantages.actions import discounted_sums
from tracewheel.learner.advantages.gae import spread, steps_of


def vtrace(
    rewards: Tensor, values: Tensor, turns: Tensor, log_ratio: Tensor, config: GaeAdvantageConfig
) -> tuple[Tensor, Tensor]:
    """Advantages and returns of each action, corrected for the policy that took them.

    With rho_i = min(rho_max, ratio_i) and c_i = lambda min(c_max, ratio_i), where the ratio is the policy's
    probability of the action over the behaviour policy's: the return v_i is
    V_i + rho_i delta_i + gamma c_i (v_(i+1) - V_(i+1)), delta_i = r_i + gamma V_(i+1) - V_i. The advantage is
    r_i + gamma (V_(i+1) + lambda (v_(i+1) - V_(i+1))) - V_i. The paper's policy gradient weighs it by rho_i;
    here that is left to the ratio of the surrogate or the correction weights, which would count it twice.
    On the policy's own actions both are those of `gae`, as long as rho_max and c_max are at least 1.

    Args:
        rewards, values, turns, config: as in `gae`; the ratio of a turn is the product over its tokens.
        log_ratio: [B, T], log-probability of the token under the policy less that under the behaviour policy.

    Returns:
        Advantages and returns [B, T] in the type of `values`, 0 off the actions.
    """
    steps = steps_of(rewards, values, turns, log_ratio, config)
    rho = steps.log_ratio.clamp(max=math.log(config.rho_max)).exp()
    c = steps.log_ratio.clamp(max=math.log(config.c_max)).exp()
    delta = steps.rewards + steps.discount * steps.following(steps.values) - steps.values
    carry = (steps.discount * steps.trace * c).masked_fill(~steps.here, 1.0)
    correction = discounted_sums((rho * delta).masked_fill(~steps.here, 0.0), carry)
    advantages = delta + steps.discount * steps.trace * steps.following(correction)
    return spread(steps, advantages, correction + steps.values, turns, config, values.dtype)
