"""The advantages of whole samples: one number for all of a trajectory's action tokens."""

from __future__ import annotations

from torch import Tensor

from tracewheel.config import (
    AdvantageConfig,
    BatchAdvantageConfig,
    GroupAdvantageConfig,
    LeaveOneOutAdvantageConfig,
    SuccessAdvantageConfig,
)
from tracewheel.learner.advantages.batch import batch_advantages
from tracewheel.learner.advantages.group import group_advantages
from tracewheel.learner.advantages.groups import Groups
from tracewheel.learner.advantages.leave_one_out import leave_one_out_advantages
from tracewheel.learner.advantages.success import success_advantages


def sample_advantages(config: AdvantageConfig, rewards: Tensor, groups: Groups) -> Tensor:
    """The advantages [N] of samples with `rewards` [N] (NaN or infinite: unscored) in `groups` [N].

    Unscored samples are left out of every mean and deviation and get 0.

    Raises:
        TypeError: the kind of advantage is one of tokens (`gae`, `teacher`), not of samples.
        ValueError: the lengths do not agree.
    """
    match config:
        case GroupAdvantageConfig():
            return group_advantages(rewards, groups, scale=config.scale)
        case LeaveOneOutAdvantageConfig():
            return leave_one_out_advantages(rewards, groups)
        case BatchAdvantageConfig():
            return batch_advantages(rewards, groups, center=config.center)
        case SuccessAdvantageConfig():
            return success_advantages(rewards, threshold=config.threshold)
    raise TypeError(f"advantage '{config.kind}' is not one of whole samples")
