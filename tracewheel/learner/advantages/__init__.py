"""Advantages: how much better a sample, a turn or a token did than was to be expected. One algorithm per file."""

from tracewheel.learner.advantages.gae import gae
from tracewheel.learner.advantages.groups import clamped, zero_variance, zero_variance_share
from tracewheel.learner.advantages.rows import broadcast, whiten
from tracewheel.learner.advantages.samples import sample_advantages
from tracewheel.learner.advantages.turns import turn_advantages
from tracewheel.learner.advantages.vtrace import vtrace

__all__ = [
    "broadcast",
    "clamped",
    "gae",
    "sample_advantages",
    "turn_advantages",
    "vtrace",
    "whiten",
    "zero_variance",
    "zero_variance_share",
]
