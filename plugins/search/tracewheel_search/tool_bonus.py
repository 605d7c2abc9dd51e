"""A bonus for episodes whose tools were unlike those of their group, in the scores of an update.

An episode's novelty is the share of the other scored episodes of its group that called another sequence of tools. It earns
`weight` times that; a failure at most half of what it lacks to the least success of its group, and so stays below it.
`success` and the verifiers' parts stay as they are, and the bonus is a part of its own, so no rate has it. Evaluations score
their own episodes by the profile's rubric: the gate never sees it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tracewheel import Score, Trajectory, success_of

MOST = 0.25  # of a reward from 0 to 1
PART = "tool_diversity_bonus"


def tools_called(trajectory: Trajectory) -> tuple[str, ...]:
    """The names of the tools that an episode called, in order."""
    said = [message for message in trajectory.messages if message["role"] == "assistant"]
    own = said[max(0, len(said) - len(trajectory.turns)) :]
    return tuple(call["function"]["name"] for message in own for call in message.get("tool_calls") or [])


def novelties(sequences: Sequence[tuple[str, ...]]) -> list[float]:
    """For each sequence the share of the others that are unlike it; 0 without others."""
    others = len(sequences) - 1
    return [sum(one != other for other in sequences) / others if others > 0 else 0.0 for one in sequences]


def with_bonus(trajectories: Sequence[Trajectory], scores: Sequence[Score], weight: float) -> list[Score]:
    """The scores with the bonus; those without a total or without a success that is known stay.

    Args:
        trajectories, scores: In the same order; those of one group are compared.
        weight: The most that an episode earns.
    """
    groups: dict[str, list[int]] = {}
    for place, item in enumerate(scores):
        if item.total is not None and not math.isnan(success_of(item)):
            groups.setdefault(item.group, []).append(place)
    found = list(scores)
    for places in groups.values():
        won = [scores[place].total or 0.0 for place in places if success_of(scores[place]) == 1.0]
        for place, novelty in zip(places, novelties([tools_called(trajectories[place]) for place in places]), strict=True):
            item = scores[place]
            assert item.total is not None
            bonus = weight * novelty
            if won and success_of(item) < 1.0:
                bonus = max(0.0, min(bonus, (min(won) - item.total) / 2))
            rewards = item.turn_rewards and [*item.turn_rewards[:-1], item.turn_rewards[-1] + bonus]
            found[place] = replace(
                item, total=item.total + bonus, breakdown={**item.breakdown, PART: bonus}, turn_rewards=rewards
            )
    return found
