"""The rubric's mode `outcome_first`: shaping may order successes and order failures, and never turns one into the other.

With O and H the outcome's and the shaping's shares of the weights (O + H = 1, O at least 1/2), p and s the weighted means of
the outcome's and the shaping terms' values, in 0 to 1:

- a success (every outcome term is 1) is worth O + H s;
- a failure is worth O (O p + H s), with its mean O p + H s at most 1 - `MARGIN`.

A failure's mean is below 1, so it is worth less than O, the least that a success is worth. Penalties and process rewards count
after that, and `bounded` keeps the total on its side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tracewheel.core.types import Score
from tracewheel.scoring.adjustments import HELD_BACK

MARGIN = 0.01
OUTCOME, SHAPING = "outcome", "shaping"
LEAST_SHARE = 0.5


class Weighed(NamedTuple):
    """What a term of the rubric gave: its value in 0 to 1, its cap applied; its weight; whether it is shaping."""

    value: float
    weight: float
    shaping: bool


class Reward(NamedTuple):
    """The reward of an episode, with what it is made of, and whether it is a success.

    Attributes:
        total: The reward.
        outcome: p, the weighted mean of the outcome terms.
        shaping: s, that of the shaping terms; 0 without any.
        share: O, the outcome's share of the weights.
        success: Whether every outcome term is 1.
    """

    total: float
    outcome: float
    shaping: float
    share: float
    success: bool


def outcome_first(terms: Sequence[Weighed]) -> Reward:
    """The reward of the terms that apply to a task.

    Raises:
        ValueError: no outcome term is among them.
    """
    outcome, shaping = [term for term in terms if not term.shaping], [term for term in terms if term.shaping]
    if not outcome:
        raise ValueError("no outcome term applies to this task")
    weight, beside = sum(term.weight for term in outcome), sum(term.weight for term in shaping)
    share = max(LEAST_SHARE, weight / (weight + beside))  # a task may be in two of the rubric's `only` at once
    p = sum(term.weight * term.value for term in outcome) / weight
    s = sum(term.weight * term.value for term in shaping) / beside if shaping else 0.0
    success = all(term.value >= 1.0 for term in outcome)
    mean = share + (1.0 - share) * s if success else share * min(share * p + (1.0 - share) * s, 1.0 - MARGIN)
    return Reward(mean, p, s, share, success)


def bounded(scored: Score, reward: Reward) -> Score:
    """The score with its total on its side: a success in O to 1, a failure at most O (1 - `MARGIN`).

    What that takes from the total (or adds, below 0) is `held_back` in the breakdown.
    """
    assert scored.total is not None
    least, most = (reward.share, 1.0) if reward.success else (scored.total, reward.share * (1.0 - MARGIN))
    total = min(max(least, scored.total), most)
    return replace(scored, total=total, breakdown={**scored.breakdown, HELD_BACK: scored.total - total})
