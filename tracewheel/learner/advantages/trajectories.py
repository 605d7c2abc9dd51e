"""Advantages of whole trajectories, one number for all action tokens of each, and of their turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tracewheel.config import AdvantageConfig
from tracewheel.config.algorithms import ComparingAdvantageConfig, OwnAdvantageConfig
from tracewheel.core.kind_table import import_class, load_class
from tracewheel.core.own_code import OwnCodeError, shown
from tracewheel.learner.advantages.group import Groups
from tracewheel.learner.kinds import ADVANTAGES


def advantage_function(kind: str) -> Callable[..., Any]:
    """The function of a kind of advantage."""
    found: Callable[..., Any] = import_class(ADVANTAGES[kind], "advantage")
    return found


def trajectory_advantages(config: AdvantageConfig, rewards: Tensor, groups: Groups) -> Tensor:
    """The advantages [N] of trajectories with `rewards` [N] (NaN or infinite: unscored) in `groups` [N].

    Unscored trajectories are left out of every mean and deviation and get 0.

    Raises:
        TypeError: the kind of advantage compares no rewards (`success`) or is one of tokens (`gae`, `teacher`).
        ValueError: the lengths differ.
        ConfigError, OwnCodeError: a function of the user's own is not there, or returns something else.
    """
    if not isinstance(config, ComparingAdvantageConfig):
        raise TypeError(f"advantage '{config.kind}' does not compare the rewards of trajectories")
    if isinstance(config, OwnAdvantageConfig):
        return _own_advantages(config, rewards, groups)
    found: Tensor = advantage_function(config.kind)(rewards, groups, **config.model_dump(exclude={"kind"}))
    return found


def _own_advantages(config: OwnAdvantageConfig, rewards: Tensor, groups: Groups) -> Tensor:
    """The advantages of a user's function.

    Raises:
        ConfigError: there is no such function, or only data names it.
        OwnCodeError: it returns something else than a finite number for each trajectory.
        Exception: whatever it raises.
    """
    function: Callable[..., Any] = load_class(config.kind, {}, "advantage")
    found = function(rewards, groups, **config.args)
    said = shown(found)
    if isinstance(found, Tensor):
        kept = found.masked_fill(~rewards.isfinite(), 0.0) if found.shape == rewards.shape else None
        if kept is not None and bool(kept.isfinite().all()):
            return kept
        said += f" {tuple(found.shape)}"
    raise OwnCodeError(
        f"advantage '{config.kind}' returns {said}; it is to return a torch.Tensor [N] of finite numbers for rewards [N], here "
        f"N is {len(rewards)}"
    )


def turn_advantages(
    config: AdvantageConfig, turn_rewards: Sequence[Sequence[float]], groups: Groups, discount: float
) -> list[list[float]]:
    """The advantage of each turn of N trajectories: its discounted reward-to-go, compared as `config` says.

    The reward-to-go of turn k is r_k + discount x (reward-to-go of turn k + 1). Turn k is compared with turn k of
    the group's other trajectories. A trajectory that ended earlier is represented by the reward-to-go of its last
    turn, so that the outcome of short ones stays in the comparison: with the whole reward on the last turn and no
    discount, every turn gets exactly the advantage of the trajectory. (Process supervision in DeepSeekMath,
    arXiv:2402.03300, section 4.1, normalises over all steps at once, which makes late steps look bad when rewards
    are collected on the way.)

    Args:
        config: group, leave_one_out or batch.
        turn_rewards: for each trajectory the rewards of its turns, in order. A NaN or infinite one makes the
            trajectory unscored: it is left out and its turns get 0.
        groups: [N] group ids.
        discount: factor per turn between a reward and the turn it is credited to.

    Returns:
        For each trajectory the advantages of its turns.
    """
    togo = [_rewards_to_go(rewards, discount) for rewards in turn_rewards]
    columns = []
    for turn in range(max((len(rewards) for rewards in togo), default=0)):
        column = [rewards[min(turn, len(rewards) - 1)] if rewards else math.nan for rewards in togo]
        columns.append(trajectory_advantages(config, torch.tensor(column, dtype=torch.double), groups).tolist())
    return [[columns[turn][row] for turn in range(len(rewards))] for row, rewards in enumerate(togo)]


def _rewards_to_go(rewards: Sequence[float], discount: float) -> list[float]:
    if not all(math.isfinite(reward) for reward in rewards):
        return [math.nan] * len(rewards)
    togo, after = [], 0.0
    for reward in reversed(rewards):
        after = reward + discount * after
        togo.append(after)
    return togo[::-1]
