"""What another rubric made of the same episodes: which became successes or failures, by family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracewheel.core.errors import DataError
from tracewheel.core.types import Score
from tracewheel.scoring.rubric import success_of

MOST_NAMED = 20
KINDS = ("to_success", "to_failure", "to_unscored", "to_scored")


def score_changes(before: Sequence[Score], after: Sequence[Score]) -> dict[str, Any]:
    """Compare two scorings of the same trajectories, in any order.

    Args:
        before: The earlier scores.
        after: The new ones.

    Returns:
        How many `episodes` there are, how many have another total (`moved`), and of each of `KINDS` how many; the mean
        `reward` of those scored both times, before and after; the same figures by `families`; and up to 20 `examples`,
        trajectory ids, of each kind.

    Raises:
        DataError: they are not of the same trajectories.
    """
    old, new = ({score.trajectory_id: score for score in scores} for scores in (before, after))
    if old.keys() != new.keys():
        raise DataError(f"the scores are of {len(old)} and {len(new)} trajectories, and not of the same ones")
    pairs = [(old[name], new[name]) for name in sorted(new)]
    families = sorted({score.family for score in new.values()})
    examples = {kind: [one.trajectory_id for one, other in pairs if _kind(one, other) == kind][:MOST_NAMED] for kind in KINDS}
    return {
        **_figures(pairs),
        "families": {family: _figures([pair for pair in pairs if pair[1].family == family]) for family in families},
        "examples": examples,
    }


def _figures(pairs: Sequence[tuple[Score, Score]]) -> dict[str, Any]:
    kinds = [_kind(*pair) for pair in pairs]
    both = [(one.total, other.total) for one, other in pairs if one.total is not None and other.total is not None]
    means = [sum(totals) / len(both) for totals in zip(*both, strict=True)] if both else [None, None]
    return {
        "episodes": len(pairs),
        "moved": sum(one != other for one, other in both),
        **{kind: kinds.count(kind) for kind in KINDS},
        "reward": {"before": means[0], "after": means[1]},
    }


def _kind(one: Score, other: Score) -> str:
    if one.total is None or other.total is None:
        return "" if one.total is other.total is None else "to_unscored" if other.total is None else "to_scored"
    was, became = success_of(one) >= 1.0, success_of(other) >= 1.0
    return "" if was == became else "to_success" if became else "to_failure"
