"""Several objectives of an episode, each computed from its breakdown or its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tracewheel.config import CostObjective, ObjectiveConfig
from tracewheel.core.errors import DataError
from tracewheel.core.types import Trajectory

PREFIX = "objective."
UNREADABLE_OBJECTIVE = "objective '"


def objective_values(
    objectives: Sequence[ObjectiveConfig], breakdown: Mapping[str, float], trajectory: Trajectory
) -> dict[str, float]:
    """The value of each objective by name, in [0, 1], higher is better.

    Args:
        objectives: The rubric's objectives.
        breakdown: The verifiers' breakdown, with `success`.
        trajectory: The scored episode.

    Raises:
        DataError: a part is missing from the breakdown or outside [0, 1]; the message names it.
    """
    return {objective.name: _value(objective, breakdown, trajectory) for objective in objectives}


def weighted(objectives: Sequence[ObjectiveConfig], values: Mapping[str, float]) -> float:
    """The reward: the weighted mean of the objectives."""
    weights = sum(objective.weight for objective in objectives)
    return sum(objective.weight * values[objective.name] for objective in objectives) / weights


def state_share(objectives: Sequence[ObjectiveConfig]) -> float:
    """The share of the reward that depends on the final state and not on cost; 1 without objectives."""
    if not objectives:
        return 1.0
    cost = sum(objective.weight for objective in objectives if isinstance(objective, CostObjective))
    return 1.0 - cost / sum(objective.weight for objective in objectives)


def left_of(budget: int, used: int) -> float:
    """The share of a budget that is left: 1 where nothing is used, 0 where all of it or more is."""
    return max(0.0, 1.0 - used / budget)


def _value(objective: ObjectiveConfig, breakdown: Mapping[str, float], trajectory: Trajectory) -> float:
    unreadable = f"{UNREADABLE_OBJECTIVE}{objective.name}'"
    if isinstance(objective, CostObjective):
        if not breakdown["success"]:
            return 0.0
        if objective.measure in ("generated_tokens", "trajectory_tokens") and trajectory.turns and not trajectory.token_ids:
            raise DataError(f"{unreadable}: the episode has no token ids to count; most endpoints return none")
        return left_of(objective.budget, _measure(objective, trajectory))
    if objective.part not in breakdown:
        parts = ", ".join(sorted(breakdown))
        raise DataError(f"{unreadable}: the breakdown has no part '{objective.part}'; its parts are {parts}")
    value = breakdown[objective.part]
    if not 0.0 <= value <= 1.0:
        raise DataError(f"{unreadable}: part '{objective.part}' is {value}, outside 0 to 1")
    return value


def _measure(objective: CostObjective, trajectory: Trajectory) -> int:
    match objective.measure:
        case "turns":
            return len(trajectory.turns)
        case "calls":
            return sum(turn["calls"] for turn in trajectory.turns)
        case "generated_tokens":
            return sum(trajectory.action_mask)
        case "trajectory_tokens":
            return len(trajectory.token_ids)
