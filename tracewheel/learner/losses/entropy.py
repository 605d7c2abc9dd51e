"""The weight of the entropy bonus."""

from __future__ import annotations

from tracewheel.config import EntropyConfig


def entropy_weight(config: EntropyConfig, entropy_mean: float) -> float:
    """The factor on the mean entropy of the action tokens (nats), which is subtracted from the loss.

    With a floor it is 0 while the entropy is at or above the floor.
    """
    if config.floor is not None and entropy_mean >= config.floor:
        return 0.0
    return config.bonus
