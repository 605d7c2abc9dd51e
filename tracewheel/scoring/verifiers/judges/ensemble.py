"""Several judges' marks as one: the majority, or the median, and how far they disagree. Pure functions."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracewheel.scoring.verifiers.judges.criteria import Criterion
from tracewheel.scoring.verifiers.judges.marks import Mark


@dataclass(frozen=True)
class Joined:
    """What an ensemble says.

    Attributes:
        total: The weighted mean of the marks in [0, 1]; a criterion that cannot be determined counts as 0. None where no
            criterion could be determined.
        marks: Criterion to its joint mark; None where it cannot be determined.
        disagreement: The chance that two members mark a criterion differently, as a weighted mean over criteria, in [0, 1].
    """

    total: float | None
    marks: Mapping[str, float | None]
    disagreement: float


def join_marks(criteria: Sequence[Criterion], votes: Sequence[Mapping[str, Mark]]) -> Joined:
    """Join the votes of an ensemble.

    A criterion of two levels is met if more than half of all votes say so: a tie does not pass, and who cannot tell does not
    vote for it. A criterion of more levels gets the lower median of the marks that were given. A criterion cannot be
    determined if at least half of the votes say that.

    Args:
        criteria: The criteria with their weights.
        votes: At least one; each has a mark of every criterion.
    """
    marks = {criterion.name: _joint(criterion, [vote[criterion.name].value for vote in votes]) for criterion in criteria}
    weights = sum(criterion.weight for criterion in criteria)
    known = [value for value in marks.values() if value is not None]
    total = sum(criterion.weight * (marks[criterion.name] or 0.0) for criterion in criteria) / weights
    spread = sum(c.weight * pair_difference([vote[c.name].value for vote in votes]) for c in criteria) / weights
    return Joined(total if known else None, marks, spread)


def pair_difference(marks: Sequence[float | None]) -> float:
    """The mean difference of two marks over all pairs of votes, 0 with one vote. A mark and none differ by 1."""
    pairs = list(itertools.combinations(marks, 2))
    return sum(_difference(one, other) for one, other in pairs) / len(pairs) if pairs else 0.0


def agreement_weight(disagreement: float) -> float:
    """What the reward's share is multiplied with: 1 where all agree, 0 where every pair differs fully."""
    return 1.0 - disagreement


def _difference(one: float | None, other: float | None) -> float:
    if one is None or other is None:
        return float(one is not other)
    return abs(one - other)


def _joint(criterion: Criterion, values: Sequence[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    if 2 * len(given) <= len(values):
        return None
    if criterion.levels == 1:
        return float(2 * sum(given) > len(values))
    return statistics.median_low(given)
