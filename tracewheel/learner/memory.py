"""What an algorithm remembers from one iteration to the next, beside weights and optimisers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tracewheel.config import KlConfig
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json, write_json

FILE = "learner.json"


@dataclass
class Memory:
    """The adapted KL weight, the mean entropy of the last step (nats), and the reward scale of each domain."""

    kl_weight: float
    entropy: float | None = None
    domains: dict[str, dict[str, float]] = field(default_factory=dict)

    @classmethod
    def load(cls, state: Path, kl: KlConfig) -> Self:
        """What the state folder holds. Without a target to adapt it to, the profile's KL weight counts.

        Raises:
            DataError: the file is not a learner's memory.
        """
        memory = cls(kl.weight)
        if (state / FILE).is_file():
            try:
                memory = cls(**read_json(state / FILE))
            except TypeError as error:
                raise DataError(f"{state / FILE}: not the memory of a learner: {error}") from error
        if kl.target is None:
            memory.kl_weight = kl.weight
        return memory

    def save(self, out: Path) -> None:
        """Write it; equal memories give equal bytes."""
        write_json(out / FILE, vars(self))
