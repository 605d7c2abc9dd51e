"""The Pareto front: candidates that no other beats on one objective without losing on another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class ParetoPoint:
    """A candidate with its value on each objective; `beaten_by` is empty on the front."""

    name: str
    objectives: Mapping[str, float | None]
    beaten_by: tuple[str, ...]

    @property
    def on_front(self) -> bool:
        return not self.beaten_by and all(value is not None for value in self.objectives.values())

    def to_record(self) -> dict[str, Any]:
        """The point as JSON types, with `on_front`."""
        return asdict(self) | {
            "objectives": dict(self.objectives),
            "beaten_by": list(self.beaten_by),
            "on_front": self.on_front,
        }


def pareto_points(candidates: Mapping[str, Mapping[str, float | None]]) -> list[ParetoPoint]:
    """Compare candidates by all their objectives; more is better.

    A candidate is beaten by one that is nowhere worse and somewhere better. One that lacks an objective
    (None: nothing was scored) is neither compared nor on the front.

    Raises:
        ValueError: the candidates have different objectives.
    """
    names = {frozenset(values) for values in candidates.values()}
    if len(names) > 1:
        raise ValueError(f"the candidates have different objectives: {', '.join(sorted(set().union(*names)))}")
    known = {
        name: {key: value for key, value in values.items() if value is not None}
        for name, values in candidates.items()
        if None not in values.values()
    }
    return [
        ParetoPoint(
            name,
            dict(values),
            tuple(other for other in known if name in known and other != name and _beats(known[other], known[name])),
        )
        for name, values in candidates.items()
    ]


def _beats(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return all(one[key] >= other[key] for key in other) and any(one[key] > other[key] for key in other)
