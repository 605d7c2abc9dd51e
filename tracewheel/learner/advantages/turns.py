"""Credit by turn: each turn is judged by what came after it, against the same turn of the group's other samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from tracewheel.config import AdvantageConfig
from tracewheel.learner.advantages.groups import Groups
from tracewheel.learner.advantages.samples import sample_advantages


def turn_advantages(
    config: AdvantageConfig, turn_rewards: Sequence[Sequence[float]], groups: Groups, discount: float
) -> list[list[float]]:
    """The advantage of each turn of N trajectories: its discounted reward-to-go, compared as `config` says.

    The reward-to-go of turn k is r_k + discount x (that of turn k + 1). The k-th turns of a group are
    compared with each other, for the rewards that turns had before are equally behind all of them. A
    trajectory that had ended by then stands in with the reward-to-go of its last turn, so that the outcome
    of the short ones stays in the comparison: with the whole reward on the last turn and no discount this
    is exactly the advantage of the trajectory, at every turn. (Outcome and process supervision of
    DeepSeekMath, arXiv:2402.03300, section 4.1, are compared over all steps at once, which takes late
    steps for bad ones when rewards are collected on the way.)

    Args:
        config: group, leave_one_out, batch or success.
        turn_rewards: for each trajectory the rewards of its turns, in order. One that is NaN or infinite makes
            the trajectory unscored: it is left out and its turns get 0.
        groups: [N] group ids.
        discount: for each turn that lies between a reward and the turn it is credited to.

    Returns:
        For each trajectory the advantages of its turns.
    """
    togo = [_rewards_to_go(rewards, discount) for rewards in turn_rewards]
    columns = []
    for turn in range(max((len(rewards) for rewards in togo), default=0)):
        column = [rewards[min(turn, len(rewards) - 1)] if rewards else math.nan for rewards in togo]
        columns.append(sample_advantages(config, torch.tensor(column, dtype=torch.double), groups).tolist())
    return [[columns[turn][row] for turn in range(len(rewards))] for row, rewards in enumerate(togo)]


def _rewards_to_go(rewards: Sequence[float], discount: float) -> list[float]:
    if not all(math.isfinite(reward) for reward in rewards):
        return [math.nan] * len(rewards)
    togo, after = [], 0.0
    for reward in reversed(rewards):
        after = reward + discount * after
        togo.append(after)
    return togo[::-1]
