"""Reward normalisation by domain: less the running mean of the task's family, divided by its running deviation."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from tracewheel.core.errors import DataError

RETAIN = 0.9  # of the earlier weight, at each update: the policy has changed since
LEAST_DEVIATION = 0.05  # of rewards from 0 to 1: keeps tiny differences small in a nearly mastered family

RewardScales = dict[str, dict[str, float]]


def normalise(
    rewards: Sequence[float], families: Sequence[str], scales: Mapping[str, Mapping[str, float]]
) -> tuple[list[float], RewardScales]:
    """Update the running moments of each family with an update's rewards, and normalise the rewards by them.

    Otherwise a domain whose rewards spread ten times as wide would have ten times the gradient. With advantages
    scaled by group this changes nothing; with unscaled ones, or a critic, it does.

    Args:
        rewards: One per rollout; NaN and infinite ones are returned as they are and do not count.
        families: The domain of each.
        scales: `{family: {"count", "mean", "squares"}}` from the last update, `{}` at first: the weight of the
            rewards so far, their mean, and the sum of squared deviations from it.

    Returns:
        The rewards, and the scales for the next update.

    Raises:
        DataError: the scales do not have that form.
    """
    if len(rewards) != len(families):
        raise ValueError(f"{len(rewards)} rewards and {len(families)} families")
    running = {family: _figures(family, values) for family, values in scales.items()}
    observed: defaultdict[str, list[float]] = defaultdict(list)
    for reward, family in zip(rewards, families, strict=True):
        if math.isfinite(reward):
            observed[family].append(reward)
    for family, values in sorted(observed.items()):
        running[family] = _merged(running.get(family), values)
    scaled = [
        (reward - running[family]["mean"]) / deviation(running[family]) if math.isfinite(reward) else reward
        for reward, family in zip(rewards, families, strict=True)
    ]
    return scaled, running


def normalise_turns(
    turn_rewards: Sequence[Sequence[float]], families: Sequence[str], scales: Mapping[str, Mapping[str, float]]
) -> list[list[float]]:
    """Normalise the rewards of turns by scales that `normalise` returned.

    Each is divided by the family's deviation, and the mean is subtracted from the last turn: a trajectory's turns
    still sum to its normalised reward.
    """
    scaled = []
    for rewards, family in zip(turn_rewards, families, strict=True):
        figures = scales.get(family)
        if figures is None or not rewards:
            scaled.append(list(rewards))
            continue
        parts = [reward / deviation(figures) for reward in rewards]
        scaled.append([*parts[:-1], parts[-1] - figures["mean"] / deviation(figures)])
    return scaled


def deviation(figures: Mapping[str, float]) -> float:
    """The running standard deviation, never less than `LEAST_DEVIATION`."""
    return max(math.sqrt(figures["squares"] / figures["count"]), LEAST_DEVIATION)


def _merged(before: Mapping[str, float] | None, values: Sequence[float]) -> dict[str, float]:
    """Merge decayed moments with new values: the pairwise update of Chan, Golub and LeVeque (1979)."""
    count = float(len(values))
    mean = math.fsum(values) / count
    squares = math.fsum((value - mean) ** 2 for value in values)
    if before is None:
        return {"count": count, "mean": mean, "squares": squares}
    old_count = RETAIN * before["count"]
    both = old_count + count
    apart = mean - before["mean"]
    return {
        "count": both,
        "mean": before["mean"] + apart * count / both,
        "squares": RETAIN * before["squares"] + squares + apart**2 * old_count * count / both,
    }


def _figures(family: str, values: object) -> dict[str, float]:
    if isinstance(values, Mapping) and set(values) == {"count", "mean", "squares"}:
        numbers = {str(name): float(value) for name, value in values.items()}
        if all(map(math.isfinite, numbers.values())) and numbers["count"] > 0 and numbers["squares"] >= 0:
            return numbers
    raise DataError(f"reward normalisation: the scale of family '{family}' is {values!r}, not count, mean and squares")
