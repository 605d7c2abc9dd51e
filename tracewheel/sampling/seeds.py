"""Seeds derived from a run's seed."""

from __future__ import annotations

from tracewheel.core.types import content_hash


def rollout_seed(seed: int, iteration: int) -> int:
    """Seed of one iteration's rollouts."""
    return _derive(seed, "rollout", iteration)


def evaluation_seed(seed: int, split: str, repeat: int = 0) -> int:
    """Seed of an evaluation's sampled rollouts: the same for every policy, so that they are paired.

    Args:
        seed: The run's.
        split: The evaluated split.
        repeat: Number of a repeated evaluation, as in an A/A run.
    """
    return _derive(seed, "evaluation", split, *([repeat] if repeat else []))


def _derive(*parts: object) -> int:
    return int(content_hash(list(parts), 8), 16)
