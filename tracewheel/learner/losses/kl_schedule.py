"""The weight of the KL term over the iterations of a run."""

from __future__ import annotations

from typing import Literal

from tracewheel.config import KlConfig

Direction = Literal["reverse", "forward"]

MAX_ERROR = 0.2
HORIZON = 10  # a larger one adapts the weight more slowly


def adapted_weight(config: KlConfig, weight: float, observed_kl: float) -> float:
    """The KL weight of the next iteration (Ziegler et al. 2019, arXiv:1909.08593, section 2.2).

    The relative error of the observed divergence from `config.target`, clipped to +-0.2, changes the weight by
    error / `HORIZON`: at the limit it doubles in about 3.5 horizons. Without a target, or with a
    divergence that is not finite, the weight stays.
    """
    if config.target is None or not -float("inf") < observed_kl < float("inf"):
        return weight
    error = max(-MAX_ERROR, min(MAX_ERROR, observed_kl / config.target - 1.0))
    return weight * (1.0 + error / HORIZON)
