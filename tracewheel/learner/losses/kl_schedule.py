"""The KL term over the iterations of a run: its direction and its weight."""

from __future__ import annotations

from typing import Literal

from tracewheel.config import KlConfig

Direction = Literal["reverse", "forward"]

MAX_ERROR = 0.2


def direction_at(config: KlConfig, iteration: int, iterations: int) -> Direction:
    """The direction of the divergence in an iteration, counted from 1 to `iterations`.

    `config.late_direction` takes over once the share `config.late_from` of the iterations is done.
    """
    if config.late_direction is not None and iteration - 1 >= config.late_from * iterations:
        return config.late_direction
    return config.direction


def adapted_weight(config: KlConfig, weight: float, observed_kl: float) -> float:
    """The KL weight of the next iteration (Ziegler et al. 2019, arXiv:1909.08593, section 2.2).

    The relative error of the observed divergence from `config.target`, clipped to +-0.2, changes the weight by
    error / `config.horizon`: at the limit it doubles in about 3.5 horizons. Without a target, or with a
    divergence that is not finite, the weight stays.
    """
    if config.target is None or not -float("inf") < observed_kl < float("inf"):
        return weight
    error = max(-MAX_ERROR, min(MAX_ERROR, observed_kl / config.target - 1.0))
    return weight * (1.0 + error / config.horizon)
