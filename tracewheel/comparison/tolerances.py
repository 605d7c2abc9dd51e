"""What of each stage must agree on another kind of machine, where sums are rounded otherwise; see docs/reproduce.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tracewheel.comparison.contents import FileDifference
from tracewheel.comparison.differences import flat
from tracewheel.core.errors import DataError
from tracewheel.core.files import read_json

RATE = 0.05


@dataclass(frozen=True)
class Tolerance:
    """How far a stage's outputs may be apart.

    Attributes:
        says: The tolerance in words.
        files: Patterns of files, and how far their numbers may be apart. Everything else in them must be equal.
        fields: Fields of JSON files by file, and how far they may be apart; 0 for equal.
    """

    says: str
    files: Mapping[str, float] = field(default_factory=dict)
    fields: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def holds(self, one: Path, two: Path, found: list[FileDifference]) -> bool:
        """Whether two outputs are within it, given the files that differ."""
        for difference in found:
            for pattern, limit in self.files.items():
                if fnmatchcase(difference.file, pattern) and not _is_near(difference, limit):
                    return False
        for name, limits in self.fields.items():
            try:
                first, second = (flat(read_json(folder / name)) for folder in (one, two))
            except DataError:
                return False
            if any(not _agree(first.get(path), second.get(path), limit) for path, limit in limits.items()):
                return False
        return True


def _is_near(difference: FileDifference, limit: float) -> bool:
    return difference.same_values or (difference.largest is not None and difference.largest <= limit)


def _agree(one: Any, two: Any, limit: float) -> bool:
    if limit and isinstance(one, int | float) and isinstance(two, int | float):
        return abs(one - two) <= limit
    return bool(one == two)


EQUAL = Tolerance("all values are equal; files may be written otherwise", {"*": 0.0})
WEIGHTS = Tolerance("each weight within 0.001", {"*.safetensors": 1e-3})
RATES = {"greedy.rate": RATE, "sampled.rate": RATE}
TOLERANCES = {
    "ingest": EQUAL,
    "curate": EQUAL,
    "warm_start": WEIGHTS,
    "champion": EQUAL,
    "rollout": Tolerance(
        "the same tokens, log-probabilities within 0.001",
        {"trajectories.parquet": 1e-3, "greedy.parquet": 1e-3, "variants.parquet": 1e-3},
    ),
    "collect": Tolerance("the same tokens, log-probabilities within 0.001", {"trajectories.parquet": 1e-3}),
    "score": Tolerance("totals within 0.001", {"scores.parquet": 1e-3}),
    "rate_trials": Tolerance("the same learning rate", fields={"trials.json": {"learning_rate": 0.0}}),
    "update": WEIGHTS,
    "go_back": WEIGHTS,
    "merge": WEIGHTS,
    "evaluate": Tolerance("greedy and sampled success within 0.05", fields={"evaluation.json": RATES}),
    "join": Tolerance("greedy and sampled success within 0.05", fields={"evaluation.json": RATES}),
    "audit": Tolerance("the same verdict", fields={"audit.json": {"verdict": 0.0}}),
    "gate": Tolerance(
        "the same verdict against the same baseline, the difference within 0.05",
        fields={"gate.json": {"verdict": 0.0, "baseline": 0.0, "difference": RATE}},
    ),
}


def tolerance_of(stage: str) -> Tolerance:
    """The tolerance of a stage; equal values for one that is not listed."""
    return TOLERANCES.get(stage, EQUAL)
