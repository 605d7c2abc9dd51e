"""Rewards of turns from values of steps, as the learner's `credit: {kind: turn}` reads them from the scores.

`baseline`: a turn's reward is the value after it less the value before it (Kazemnejad et al. 2024, "VinePPO"); use
`credit: {kind: turn, discount: 0}`. `shaping`: the outcome keeps at least half of the weight, on the last turn.

The rewards of an episode's turns sum to its outcome in both, so the total and the success of a score stay. The value before the
first turn, which all episodes of a task share, stays in the first turn's reward: the comparison with the group takes it out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from tracewheel import ConfigError, Score

MOST = 0.5  # of the reward, of shaping


def turn_rewards(values: Sequence[float], outcome: float, weight: float = 1.0) -> list[float]:
    """The rewards of K turns.

    With values V_1 to V_(K-1) after each turn but the last, V_K the outcome and V_0 = 0, turn k gets weight (V_k - V_(k-1)),
    and the last turn (1 - weight) x outcome in addition.

    Args:
        values: V_1 to V_(K-1); NaN where a step was not tried: the turn before it then gets no reward, and the next known
            value is compared with the last known one.
        outcome: What the episode earned.
        weight: Of the values.
    """
    rewards, before = [], 0.0
    for value in [*values, outcome]:
        known = before if math.isnan(value) else value
        rewards.append(weight * (known - before))
        before = known
    rewards[-1] += (1.0 - weight) * outcome
    return rewards


def credited(
    scores: Sequence[Score],
    values: Mapping[str, Mapping[int, float]],
    turns: Mapping[str, int],
    kind: Literal["baseline", "shaping"] = "baseline",
    weight: float = MOST,
) -> list[Score]:
    """The scores with `turn_rewards`; totals, breakdowns and unscored episodes stay as they are.

    Args:
        scores: Of trajectories.
        values: By trajectory, the value after so many turns.
        turns: By trajectory, how many turns it has.
        kind: See the module.
        weight: Of shaping.

    Raises:
        ConfigError: shaping would weigh more than the outcome.
    """
    if kind == "shaping" and not 0.0 < weight <= MOST:
        raise ConfigError(
            f"the weight of shaping is {weight}: the outcome keeps at least half, so it is above 0 and at most {MOST}"
        )
    found = []
    for item in scores:
        count = turns[item.trajectory_id]
        if item.total is None or not count:
            found.append(item)
            continue
        known = values.get(item.trajectory_id, {})
        inner = [known.get(step, math.nan) for step in range(1, count)]
        rewards = turn_rewards(inner, item.total, 1.0 if kind == "baseline" else weight)
        found.append(replace(item, turn_rewards=rewards))
    return found
