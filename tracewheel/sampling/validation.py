"""Which iterations a loop has room for, which are candidates, and how candidates are ranked."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

from tracewheel.config import TrainingConfig


def has_room(budget: int | None, used: int, wanted: int) -> bool:
    """Whether another iteration of `wanted` episodes fits in the rest of the budget; None is no limit."""
    return budget is None or used + wanted <= budget


VALIDATION_SAMPLES = 1
MODES = ("greedy", "sampled")
Key = TypeVar("Key", bound=Hashable)


def validates(training: TrainingConfig, iteration: int) -> bool:
    """Whether an iteration's policy is a candidate: every `validate_every`-th is, and the last."""
    return iteration % training.validate_every == 0 or iteration == training.iterations


def validation_rate(evaluation: Mapping[str, Any]) -> float | None:
    """The mean of greedy and sampled success, by which candidates are ranked; None where a mode has no scored task."""
    rates = [evaluation[mode]["rate"] for mode in MODES]
    return None if None in rates else float(sum(rates) / len(rates))


def best_of(rates: Mapping[Key, float | None]) -> Key | None:
    """The key of the highest rate; ties go to the earliest. An unknown rate is not 0: it is not ranked.

    Returns:
        None where no rate is known.
    """
    known = {key: rate for key, rate in rates.items() if rate is not None}
    return max(known, key=lambda key: known[key]) if known else None
