"""Monte Carlo values of the turns of episodes: how often the policy succeeds from there (Wang et al. 2024, "Math-Shepherd").

A step is the end of a turn. From it the policy plays on k times; the value is the share of verified successes, with its Wilson
interval. The last step's value is the outcome itself. Equal beginnings, of episodes or of their turns, are tried once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tracewheel import (
    Count,
    RetrainConfig,
    Score,
    ScoreSections,
    Strict,
    Task,
    Trajectory,
    read_scores,
    score,
    success_of,
    wilson_interval,
    write_records,
)
from tracewheel_search.continuing import Branch, Player, branch_seed, check_scored, new_tokens, sampled_turns, within
from tracewheel_search.pairs import SCORES, TRAJECTORIES

BATCH = 128  # continuations played at once


class StepSettings(Strict):
    """Which steps are tried, how often, and the most tokens that the policy may sample for it.

    `where: every` tries every step. `uncertain` tries, of each episode, the states before and after the `turns` turns in which
    the policy was least sure: the largest mean of -log p of their tokens, of which the mean is the entropy.
    """

    budget: Count
    continuations: Count = 4
    where: Literal["every", "uncertain"] = "every"
    turns: Count = 2
    seed: int = 0


@dataclass(frozen=True)
class StepValue:
    """The value of an episode after `turn` turns; `tried` is 0 where it is the outcome itself.

    `low` and `high` are the ends of its 95% interval.
    """

    trajectory: str
    task: str
    turn: int
    turns: int
    successes: float
    tried: int
    value: float
    low: float
    high: float


def surprise(trajectory: Trajectory) -> list[float]:
    """The mean of -log p over the tokens of each turn, in nats."""
    return [-sum(turn.logprobs) / len(turn.logprobs) if turn.logprobs else 0.0 for turn in sampled_turns(trajectory)]


def chosen_steps(trajectory: Trajectory, settings: StepSettings) -> list[int]:
    """After how many turns an episode's value is tried; never after its last one, whose value is the outcome."""
    turns = len(trajectory.turns)
    if settings.where == "every":
        return list(range(turns))
    unsure = surprise(trajectory)
    first = sorted(range(turns), key=lambda turn: (-unsure[turn], turn))[: settings.turns]
    return sorted({step for turn in first for step in (turn, turn + 1) if step < turns})


def step_values(
    config: RetrainConfig,
    player: Player,
    tasks: Mapping[str, Task],
    episodes: Sequence[tuple[Trajectory, float | None]],
    settings: StepSettings,
    scratch: Path,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[StepValue], dict[str, Any]]:
    """The values of the steps of episodes, in their order, as far as the budget goes.

    Args:
        config: The profile; its rubric judges the continuations.
        player: Plays with the policy whose values these are.
        tasks: By id.
        episodes: Each with its verified success; None where it has no score, and then its last step has no value.
        settings: Which steps, and the budget.
        scratch: A folder for the continuations and their scores, batch by batch.
        progress: Told the continuations played and all of them.

    Returns:
        The values, and the figures: `sampled_tokens`, `continuations`, `steps` tried, and how many had no budget left.
    """
    starts: dict[tuple[str, tuple[int, ...]], Branch] = {}
    wanted: list[tuple[Trajectory, int, tuple[str, tuple[int, ...]]]] = []
    for trajectory, _ in episodes:
        for step in chosen_steps(trajectory, settings):
            end = trajectory.turns[step - 1]["end"] if step else 0
            key = (trajectory.task_id, tuple(trajectory.token_ids[:end]))
            starts.setdefault(key, Branch(tasks[trajectory.task_id], 0, 0, trajectory if step else None, step))
            wanted.append((trajectory, step, key))
    found, figures = _continue(config, player, starts, settings, scratch, progress)
    values = [_value(trajectory, step, *found[key]) for trajectory, step, key in wanted if key in found and found[key][1] > 0]
    outcomes = [_outcome(trajectory, success) for trajectory, success in episodes if success is not None and trajectory.turns]
    order = {trajectory.id: number for number, (trajectory, _) in enumerate(episodes)}
    return sorted(values + outcomes, key=lambda each: (order[each.trajectory], each.turn)), figures


def _continue(
    config: RetrainConfig,
    player: Player,
    starts: Mapping[tuple[str, tuple[int, ...]], Branch],
    settings: StepSettings,
    scratch: Path,
    progress: Callable[[int, int], None] | None,
) -> tuple[dict[tuple[str, tuple[int, ...]], tuple[float, int]], dict[str, Any]]:
    """Successes and scored tries from each start; a start without the budget for all its tries is left out."""
    numbers: dict[str, int] = {}
    branches: list[tuple[tuple[str, tuple[int, ...]], Branch]] = []
    for key, start in starts.items():
        for _ in range(settings.continuations):
            number = numbers[start.task.id] = numbers.get(start.task.id, -1) + 1
            seed = branch_seed(settings.seed, start.task, number)
            branches.append((key, Branch(start.task, number, seed, start.parent, start.kept)))
    found: dict[tuple[str, tuple[int, ...]], tuple[float, int]] = {}
    spent = played = 0
    unscored: list[str] = []
    batch = max(1, BATCH // settings.continuations) * settings.continuations
    while played < len(branches):
        some = branches[played : played + batch]
        fits = within(settings.budget - spent, [player.most_tokens(branch) for _, branch in some])
        some = some[: fits - fits % settings.continuations]
        if not some:
            break
        trajectories, scores = _judge(config, player, [branch for _, branch in some], scratch / f"{played:06d}")
        for (key, branch), trajectory, item in zip(some, trajectories, scores, strict=True):
            spent += new_tokens(branch, trajectory)
            good, tried = found.get(key, (0.0, 0))
            found[key] = (good + success_of(item), tried + 1) if item.total is not None else (good, tried)
        played += len(some)
        unscored += [item.detail for item in scores if item.total is None]
        check_scored(unscored, played)
        if progress:
            progress(played, len(branches))
    left = len(starts) - len(found)
    return found, {"sampled_tokens": spent, "continuations": played, "steps": len(found), "steps_without_budget": left}


def _judge(
    config: RetrainConfig, player: Player, branches: Sequence[Branch], out: Path
) -> tuple[list[Trajectory], list[Score]]:
    played = player.play(branches)
    out.mkdir(parents=True, exist_ok=True)
    write_records(out / TRAJECTORIES, played, Trajectory)
    tasks = {branch.task.id: branch.task for branch in branches}
    score(ScoreSections.of(config), list(tasks.values()), out / TRAJECTORIES, out)
    return played, read_scores(out / SCORES)


def _value(trajectory: Trajectory, step: int, successes: float, tried: int) -> StepValue:
    interval = wilson_interval(successes, tried)
    turns, value = len(trajectory.turns), successes / tried
    return StepValue(trajectory.id, trajectory.task_id, step, turns, successes, tried, value, interval.low, interval.high)


def _outcome(trajectory: Trajectory, success: float) -> StepValue:
    turns = len(trajectory.turns)
    return StepValue(trajectory.id, trajectory.task_id, turns, turns, success, 0, success, success, success)
