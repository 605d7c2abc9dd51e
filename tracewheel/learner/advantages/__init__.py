"""Advantages: how much better a trajectory, a turn or a token did than expected. One algorithm per file."""

from tracewheel.learner.advantages.domain import domain_advantages
from tracewheel.learner.advantages.gae import gae
from tracewheel.learner.advantages.greedy_baseline import at_the_baseline, greedy_baseline_advantages
from tracewheel.learner.advantages.group_statistics import clamped, zero_variance, zero_variance_share
from tracewheel.learner.advantages.kl_to_go import kl_to_go_advantages
from tracewheel.learner.advantages.trajectories import trajectory_advantages
from tracewheel.learner.advantages.turns import turn_advantages
from tracewheel.learner.advantages.vtrace import vtrace
from tracewheel.learner.advantages.whitening import whiten

__all__ = [
    "at_the_baseline",
    "clamped",
    "domain_advantages",
    "gae",
    "greedy_baseline_advantages",
    "kl_to_go_advantages",
    "trajectory_advantages",
    "turn_advantages",
    "vtrace",
    "whiten",
    "zero_variance",
    "zero_variance_share",
]
