"""What a rubric adds to the verifiers' reward or subtracts from it: process rewards, overlong and flawed episodes.

Each has its place in the breakdown, and none changes `success`. The reward may leave 0 to 1.
"""

from __future__ import annotations

from dataclasses import replace

from tracewheel.core.types import Score, Trajectory

PROCESS, MALFORMED, OVERLONG, FLAWED = "process_reward", "malformed_penalty", "overlong_penalty", "flawed_penalty"
OVERLONG_WEIGHT = 0.5  # the paper's 1 for rewards of -1 and 1 is this of ours, 0 and 1
HELD_BACK = "held_back"  # what `outcome_first` took from the total
# Parts of a breakdown that are no verifier's mark.
ADJUSTMENTS = (PROCESS, MALFORMED, OVERLONG, FLAWED, HELD_BACK)


def with_process_rewards(scored: Score, trajectory: Trajectory) -> Score:
    """Add the rewards that the environment returned during the episode, each to its turn.

    The score gets `turn_rewards` where it had none: the rest of the total is on the last turn.

    Args:
        scored: A score with a total; its `turn_rewards`, where it has some, sum to that.
        trajectory: The scored episode; its turns may have a `reward`.
    """
    assert scored.total is not None
    given = [turn.get("reward") for turn in trajectory.turns]
    if all(reward is None for reward in given):
        return scored
    rewards = [float(reward or 0.0) for reward in given]
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


def overlong_penalty(longest: int, cache: int, generated: int) -> float:
    """DAPO's soft overlong punishment as a penalty, from 0 to `OVERLONG_WEIGHT` (arXiv:2503.14476, equation 13).

    Args:
        longest: Tokens from which on the penalty is whole: the paper's L_max.
        cache: How many tokens before that it begins: L_cache.
        generated: Tokens that the policy generated in the episode.
    """
    return OVERLONG_WEIGHT * min(1.0, max(0.0, (generated - (longest - cache)) / cache))
