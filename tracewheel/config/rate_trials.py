"""How `learner.learning_rate: auto` finds a rate."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from tracewheel.config.base import Positive, Strict


class RateTrialsConfig(Strict):
    """Trials of learning rates on the training tasks, before the first iteration.

    Each of `rates` makes one update from the starting policy on half of those of the first iteration's tasks that give a
    signal; KL from the starting policy is measured on the other tasks. The largest rate is used up to which KL stays
    below `kl_most` nats a token, the lowest where none does.
    """

    rates: Annotated[tuple[Positive, ...], Field(min_length=2)] = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
    kl_most: Positive = 0.01

    @field_validator("rates")
    @classmethod
    def _sorted(cls, rates: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(sorted(set(rates)))
