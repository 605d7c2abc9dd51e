"""Advantages of whole trajectories: one number for all action tokens of each."""

from __future__ import annotations

from torch import Tensor

from tracewheel.config import AdvantageConfig, BatchAdvantageConfig, GroupAdvantageConfig, LeaveOneOutAdvantageConfig
from tracewheel.learner.advantages.batch import batch_advantages
from tracewheel.learner.advantages.group import group_advantages
from tracewheel.learner.advantages.group_statistics import Groups
from tracewheel.learner.advantages.leave_one_out import leave_one_out_advantages


def trajectory_advantages(config: AdvantageConfig, rewards: Tensor, groups: Groups) -> Tensor:
    """The advantages [N] of trajectories with `rewards` [N] (NaN or infinite: unscored) in `groups` [N].

    Unscored trajectories are left out of every mean and deviation and get 0.

    Raises:
        TypeError: the kind of advantage compares no rewards (`success`) or is one of tokens (`gae`, `teacher`).
        ValueError: the lengths differ.
    """
    match config:
        case GroupAdvantageConfig():
            return group_advantages(rewards, groups, scale=config.scale)
        case LeaveOneOutAdvantageConfig():
            return leave_one_out_advantages(rewards, groups)
        case BatchAdvantageConfig():
            return batch_advantages(rewards, groups, center=config.center)
    raise TypeError(f"advantage '{config.kind}' does not compare the rewards of trajectories")
