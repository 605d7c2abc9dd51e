"""V-trace (Espeholt et al. 2018, "IMPALA", arXiv:1802.01561): values of the policy from another policy's actions."""

from __future__ import annotations

import math

from torch import Tensor

from tracewheel.config import GaeAdvantageConfig
from tracewheel.learner.advantages.actions import discounted_sums
from tracewheel.learner.advantages.gae import actions_of, to_tokens


def vtrace(
    rewards: Tensor, values: Tensor, turns: Tensor, log_ratio: Tensor, config: GaeAdvantageConfig
) -> tuple[Tensor, Tensor]:
    """Advantages and returns of each action, corrected for the policy that took them.

    With rho_i = min(rho_max, ratio_i) and c_i = lambda min(c_max, ratio_i), where the ratio is the policy's
    probability of the action over the behaviour policy's: the return v_i is
    V_i + rho_i delta_i + gamma c_i (v_(i+1) - V_(i+1)), delta_i = r_i + gamma V_(i+1) - V_i. The advantage is
    r_i + gamma (V_(i+1) + lambda (v_(i+1) - V_(i+1))) - V_i. The paper's policy gradient weighs it by rho_i;
    here the surrogate's ratio or the correction weights do, and a second factor would count it twice. On-policy
    both equal `gae`, if rho_max and c_max are at least 1.

    Args:
        rewards, values, turns, config: as in `gae`; the ratio of a turn is the product over its tokens.
        log_ratio: [B, T], log-probability of the token under the policy less that under the behaviour policy.

    Returns:
        Advantages and returns [B, T] in the type of `values`, 0 off the actions.
    """
    actions = actions_of(rewards, values, turns, log_ratio, config)
    rho = actions.log_ratio.clamp(max=math.log(config.rho_max)).exp()
    c = actions.log_ratio.clamp(max=math.log(config.c_max)).exp()
    delta = actions.rewards + actions.discount * actions.following(actions.values) - actions.values
    carry = (actions.discount * actions.trace * c).masked_fill(~actions.here, 1.0)
    correction = discounted_sums((rho * delta).masked_fill(~actions.here, 0.0), carry)
    advantages = delta + actions.discount * actions.trace * actions.following(correction)
    return to_tokens(actions, advantages, correction + actions.values, turns, config, values.dtype)
