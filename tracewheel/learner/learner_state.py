"""The numbers that an algorithm carries from one update to the next, other than weights and optimisers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tracewheel.config import KlConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json, write_json

FILE = "learner.json"


@dataclass
class LearnerState:
    """The adapted KL weight, and the mean entropy of the last step (nats). `domains` is empty since 0.2."""

    kl_weight: float
    entropy: float | None = None
    domains: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path, kl: KlConfig) -> Self:
        """Read the state of the previous update, or start a new one. Without a KL target the profile's KL weight holds.

        Raises:
            DataError: the file does not hold a learner's state.
        """
        state = cls(kl.weight)
        if (folder / FILE).is_file():
            try:
                state = cls(**read_json(folder / FILE))
            except TypeError as error:
                raise DataError(f"{folder / FILE}: not a learner's state: {error}") from error
        if kl.target is None:
            state.kl_weight = kl.weight
        return state

    def save(self, out: Path) -> None:
        """Write it; equal states give equal bytes."""
        write_json(out / FILE, vars(self))
