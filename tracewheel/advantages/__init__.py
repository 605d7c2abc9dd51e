"""Advantages: how much better a sample, a turn or a token did than was to be expected. One algorithm per file."""

from tracewheel.advantages.gae import gae
from tracewheel.advantages.groups import clamped, zero_variance, zero_variance_share
from tracewheel.advantages.rows import broadcast, whiten
from tracewheel.advantages.samples import sample_advantages
from tracewheel.advantages.turns import turn_advantages
from tracewheel.advantages.vtrace import vtrace

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
