"""What a rubric makes of the verifiers' reward, and the names of that in a score's breakdown.

It adds process rewards and subtracts penalties of overlong and flawed episodes. Each has its place in the breakdown, and none
changes `success`. The reward may leave 0 to 1.

In the mode `outcome_first` shaping may order successes and order failures, and never turns one into the other. With O and H the
outcome's and the shaping's shares of the weights (O + H = 1, O at least 1/2), p and s the weighted means of the outcome's and
the shaping terms' values, in 0 to 1:

- a success (every outcome term is 1) is worth O + H s;
- a failure is worth O (O p + H s), with its mean O p + H s at most 1 - `MARGIN`.

A failure's mean is below 1, so it is worth less than O, the least that a success is worth. Penalties and process rewards count
after that, and `bounded` keeps the total on its side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tracewheel.config import OverlongConfig
from tracewheel.core.types import Score, Trajectory
from tracewheel.scoring.objectives import PREFIX

PROCESS, MALFORMED, OVERLONG, FLAWED = "process_reward", "malformed_penalty", "overlong_penalty", "flawed_penalty"
HELD_BACK = "held_back"  # what `outcome_first` took from the total
# Parts of a breakdown that are no verifier's mark.
ADJUSTMENTS = (PROCESS, MALFORMED, OVERLONG, FLAWED, HELD_BACK)


def with_process_rewards(scored: Score, trajectory: Trajectory, weight: float) -> Score:
    """Add the rewards that the environment returned during the episode, each to its turn.

    The score gets `turn_rewards` where it had none: the rest of the total is on the last turn.

    Args:
        scored: A score with a total; its `turn_rewards`, where it has some, sum to that.
        trajectory: The scored episode; its turns may have a `reward`.
        weight: What the rewards are multiplied with.
    """
    assert scored.total is not None
    given = [turn.get("reward") for turn in trajectory.turns]
    if not weight or all(reward is None for reward in given):
        return scored
    rewards = [weight * float(reward or 0.0) for reward in given]
    before = scored.turn_rewards or [*[0.0] * (len(rewards) - 1), scored.total]
    return replace(
        scored,
        total=scored.total + sum(rewards),
        breakdown={**scored.breakdown, PROCESS: sum(rewards)},
        turn_rewards=[old + new for old, new in zip(before, rewards, strict=True)],
    )


def with_penalty(scored: Score, name: str, penalty: float) -> Score:
    """Subtract a penalty from the total and write it into the breakdown, 0 included."""
    assert scored.total is not None
    return replace(scored, total=scored.total - penalty, breakdown={**scored.breakdown, name: penalty})


def overlong_penalty(config: OverlongConfig, generated: int) -> float:
    """DAPO's soft overlong punishment as a penalty, from 0 to `config.weight` (arXiv:2503.14476, equation 13).

    Args:
        config: Where it begins and ends.
        generated: Tokens that the policy generated in the episode.
    """
    over = (generated - (config.max_tokens - config.cache)) / config.cache
    return config.weight * min(1.0, max(0.0, over))


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


CAPPED = "capped."
CERTAINTY = "certainty"
NO_MARKS = ("success", CERTAINTY, OUTCOME, SHAPING, *ADJUSTMENTS)


def verifier_marks(breakdown: Mapping[str, float]) -> dict[str, float]:
    """The verifiers' own marks, each verifier's total and its parts: without what the rubric made of them."""
    return {name: value for name, value in breakdown.items() if name not in NO_MARKS and not name.startswith((PREFIX, CAPPED))}
