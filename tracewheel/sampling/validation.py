"""Which iterations are candidates, and how candidates are ranked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tracewheel.config import TrainingConfig

VALIDATION_SAMPLES = 1


def validates(training: TrainingConfig, iteration: int) -> bool:
    """Whether an iteration's policy is a candidate: every `validate_every`-th is, and the last."""
    return iteration % training.validate_every == 0 or iteration == training.iterations


def validation_rate(evaluation: Mapping[str, Any]) -> float:
    """The mean of greedy and sampled success, by which candidates are ranked."""
    return sum(evaluation[mode]["rate"] or 0.0 for mode in ("greedy", "sampled")) / 2
