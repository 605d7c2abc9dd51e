"""Differential privacy of a client towards everybody, the server among them: its change is clipped, and noise is added.

What is protected is all that a client has: by what it sends, nobody can tell its logs from any others. That is much stronger
than protecting one record, and costs much more noise.
"""

from __future__ import annotations

import math

import numpy as np

from tracewheel_federated.low_rank import A, Adapter, Array

PRECISION = 1e-9


def noised(adapter: Adapter, start: Adapter, *, clip: float, noise: float, seed: int, frozen_a: bool) -> dict[str, Array]:
    """The adapter with its change of the trained factors clipped to the norm `clip`, plus noise of `noise * clip` an entry."""
    trained = [name for name in sorted(adapter) if not (frozen_a and A in name)]
    changes = {name: adapter[name].astype(np.float64) - start[name] for name in trained}
    norm = math.sqrt(sum(float(np.sum(change**2)) for change in changes.values()))
    scale = min(1.0, clip / norm) if norm else 1.0
    chance = np.random.default_rng(seed)
    sent = {
        name: start[name] + scale * changes[name] + chance.normal(0.0, noise * clip, changes[name].shape) for name in trained
    }
    return {name: sent.get(name, adapter[name]).astype(np.float32) for name in adapter}


def epsilon(noise: float, rounds: int, delta: float) -> float:
    """Epsilon of what a client sends in all rounds, exactly (the analytic Gaussian mechanism, Balle and Wang 2018).

    Neighbours differ in all of one client's logs, so clipped changes differ by twice the clipping norm. Many rounds are one
    Gaussian release with the noise of one over the root of their number. Nothing is gained by clients being sampled.
    """
    if noise <= 0:
        return math.inf
    reach = 2.0 * math.sqrt(rounds) / noise

    def leaked(candidate: float) -> float:
        low = _normal(reach / 2 - candidate / reach)
        return low - math.exp(min(700.0, candidate) + _log_normal(-reach / 2 - candidate / reach))

    if leaked(0.0) <= delta:
        return 0.0
    below, above = 0.0, 1.0
    while leaked(above) > delta:
        above *= 2
    while above - below > PRECISION * above:
        middle = (below + above) / 2
        below, above = (middle, above) if leaked(middle) > delta else (below, middle)
    return above


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def _log_normal(x: float) -> float:
    """The logarithm of the normal distribution function, which far out is too small for a number."""
    if x > -30:
        return math.log(_normal(x))
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi))
