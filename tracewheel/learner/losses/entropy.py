"""The weight of the entropy bonus."""

from __future__ import annotations

from tracewheel.config import EntropyConfig


def entropy_weight(config: EntropyConfig, entropy_mean: float) -> float:
    """What the mean entropy of the action tokens (nats) is multiplied by before it is taken off the loss.

    With a floor it is the bonus only while the entropy lies below it, and 0 above.
    """
    if config.floor is not None and entropy_mean >= config.floor:
        return 0.0
    return config.bonus
