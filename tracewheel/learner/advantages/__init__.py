"""Advantages: how much better a trajectory, a turn or a token did than expected. One algorithm per file."""

from tracewheel.learner.advantages.group import whiten, zero_variance, zero_variance_share
from tracewheel.learner.advantages.trajectories import advantage_function, trajectory_advantages, turn_advantages

__all__ = [
    "advantage_function",
    "trajectory_advantages",
    "turn_advantages",
    "whiten",
    "zero_variance",
    "zero_variance_share",
]
