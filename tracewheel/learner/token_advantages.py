"""The advantage of each token of an update's trajectories: by group, by critic or by teacher.

The profile chooses the kind of advantage, whether a turn or the trajectory gets the credit, and whether the
divergence to the reference policy is subtracted from the reward.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tracewheel.config import (
    BatchAdvantageConfig,
    DomainAdvantageConfig,
    GaeAdvantageConfig,
    PolicyGradientConfig,
    SuccessAdvantageConfig,
)
from tracewheel.core.errors import DataError
from tracewheel.core.forks import forks_of
from tracewheel.learner.advantages.group import at_the_baseline, zero_variance
from tracewheel.learner.advantages.trajectories import advantage_function, trajectory_advantages, turn_advantages
from tracewheel.learner.batch import Batch, turn_numbers
from tracewheel.learner.losses.ratios import LOG_RATIO_BOUND, k3, kl_term
from tracewheel.learner.per_token import pad_per_token
from tracewheel.learner.scored_trajectories import truncated
from tracewheel.learner.trajectory_table import TrajectoryTable


def advantages_by_group(
    config: PolicyGradientConfig, table: TrajectoryTable, kl_weight: float
) -> tuple[np.ndarray, list[list[float]]]:
    """Advantages from comparing the rewards of trajectories, or 1 for each success to imitate.

    Args:
        config: The learner's.
        table: Trajectories with a finite `reward` each; with `reference` when the KL is subtracted from the reward.
        kl_weight: Of that penalty.

    Returns:
        The positions of the rows that take part, and for every row the advantage of each of its tokens.
    """
    if isinstance(config.advantage, SuccessAdvantageConfig):
        reached = table.frame["outcome" if "outcome" in table.frame else "total"]  # process rewards do not make a success
        succeeded = reached.to_numpy(dtype="float64") >= config.advantage.threshold
        return np.flatnonzero(succeeded), [[1.0] * len(mask) for mask in table.frame["action_mask"]]
    if not len(table):
        return np.zeros(0, dtype=int), []
    groups = table.frame["group"].tolist()
    rewards = np.array(table.frame["reward"].tolist())
    plain = torch.from_numpy(rewards)
    baselines = baselines_of(table) if config.advantage.kind == "greedy_baseline" else None
    no_signal = _no_signal(config, table, plain) if baselines is None else at_the_baseline(plain, baselines, groups).numpy()
    divergences = _divergences(config, table)
    shaped = torch.from_numpy(rewards - kl_weight * np.array([float(each.sum()) for each in divergences]))
    if config.kl.credit == "to_go" and isinstance(config.advantage, BatchAdvantageConfig):
        masks = [torch.tensor(list(mask)) for mask in table.frame["action_mask"]]
        penalties = [kl_weight * each for each in divergences]
        center, to_go = config.advantage.center, advantage_function("kl_to_go")
        advantages = [row.tolist() for row in to_go(plain, penalties, masks, groups, center=center)]
    elif config.credit.kind == "turn":
        per_turn = turn_advantages(config.advantage, _turn_rewards(table, shaped.tolist()), groups, config.credit.discount)
        columns = zip(table.frame["action_mask"], forks_of(table.frame), per_turn, strict=True)
        advantages = [_by_turn(turn_numbers(list(mask), forks), values) for mask, forks, values in columns]
    else:
        if isinstance(config.advantage, DomainAdvantageConfig):
            by_domain = advantage_function("domain")
            values = by_domain(shaped, groups, domains_of(config.advantage, table), _sizes(config, table))
        elif baselines is None:
            values = trajectory_advantages(config.advantage, shaped, groups)
        else:
            values = advantage_function("greedy_baseline")(shaped, baselines)
        advantages = [[value] * len(mask) for mask, value in zip(table.frame["action_mask"], values.tolist(), strict=True)]
    kept = np.ones(len(table), dtype=bool)
    match config.zero_variance.kind:
        case "skip" | "dynamic":
            kept = ~no_signal
        case "keep":
            advantages = [[0.0] * len(row) if no_signal[n] else row for n, row in enumerate(advantages)]
    return np.flatnonzero(kept), advantages


def domains_of(advantage: DomainAdvantageConfig, table: TrajectoryTable) -> list[str]:
    """The domain of each row [N]; one for all where the scores are of tasks of one environment.

    Raises:
        DataError: the scores do not name the families of their tasks.
    """
    if advantage.by in table.frame:
        return [str(name) for name in table.frame[advantage.by].fillna("")]
    if advantage.by == "family":
        raise DataError("learner.advantage.by 'family': the scores name no family of their tasks; score the rollouts again")
    return [""] * len(table)


def _sizes(config: PolicyGradientConfig, table: TrajectoryTable) -> Tensor | None:
    """What each row [N] weighs in the loss; None where domains are to weigh as much as they have rows."""
    if not isinstance(config.advantage, DomainAdvantageConfig) or config.advantage.weight == "rows":
        return None
    by_row = config.aggregation == "sequence"
    return torch.tensor([1.0 if by_row else float(sum(mask)) for mask in table.frame["action_mask"]], dtype=torch.double)


def baselines_of(table: TrajectoryTable) -> Tensor:
    """The reward of the greedy episode of each row's task [N]; NaN where it is unscored.

    Raises:
        DataError: the scores have no baselines.
    """
    if "baseline" not in table.frame:
        raise DataError(
            "learner.advantage.kind 'greedy_baseline' needs a greedy episode of each task, and the scores have no column "
            "'baseline': roll out and score again with this profile"
        )
    return torch.from_numpy(table.frame["baseline"].to_numpy(dtype="float64", na_value=math.nan).copy())


def advantages_by_critic(
    config: PolicyGradientConfig, advantage: GaeAdvantageConfig, table: TrajectoryTable, batches: list[Batch], kl_weight: float
) -> tuple[list[Tensor], list[Tensor]]:
    """Advantages and returns [T] of each row, from its own values.

    Args:
        config: The learner's.
        advantage: The part of it that describes the critic.
        table: Trajectories with a finite `reward` each, and `values`; with `reference` when the KL is subtracted
            from the reward, with `values_after` when truncated episodes are bootstrapped.
        batches: All the rows, in batches.
        kl_weight: Of that penalty.
    """
    per_turn = _turn_rewards(table, table.frame["reward"].tolist())
    cut = truncated(table.frame) if "values_after" in table.per_token else np.zeros(len(table), dtype=bool)
    advantages: list[Tensor] = [torch.zeros(0)] * len(table)
    returns = list(advantages)
    for batch in batches:
        turns, mask, behaviour = batch.turns.cpu(), batch.action_mask.cpu(), batch.behaviour_logprobs.cpu()
        rewards = torch.zeros(turns.shape)
        for number, position in enumerate(batch.rows.tolist()):
            for turn, reward in enumerate(per_turn[position]):
                rewards[number, int(torch.nonzero(turns[number] == turn).max())] = reward
        if "values_after" in table.per_token:
            after, gamma = pad_per_token(table.per_token["values_after"], batch).cpu(), _last_discount(advantage)
            for number, position in enumerate(batch.rows.tolist()):
                if cut[position]:
                    last = int(torch.nonzero(turns[number] >= 0).max())
                    rewards[number, last] = gamma * after[number, last]
        if "reference" in table.per_token:
            reference = pad_per_token(table.per_token["reference"], batch).cpu()
            rewards = rewards - kl_weight * kl_term(config.kl, behaviour, reference, behaviour, mask)
        values = pad_per_token(table.per_token["values"], batch).cpu()
        found = advantage_function("gae")(rewards, values, turns, advantage)
        for number, position in enumerate(batch.rows.tolist()):
            advantages[position], returns[position] = found[0][number], found[1][number]
    return advantages, returns


def advantages_by_teacher(table: TrajectoryTable) -> list[list[float]]:
    """The teacher's log-probability of each token, less that of the policy that sampled it; 20 nats at most."""
    advantages = []
    columns = zip(table.frame["action_mask"], table.frame["logprobs"], table.per_token["teacher"], strict=True)
    for mask, logprobs, teacher in columns:
        taught = teacher[: len(mask)].tolist()
        gaps = [max(-LOG_RATIO_BOUND, min(LOG_RATIO_BOUND, t - p)) for p, t in zip(logprobs, taught, strict=True)]
        advantages.append([gap if m else 0.0 for m, gap in zip(mask, gaps, strict=True)])
    return advantages


def mean_divergence(table: TrajectoryTable) -> float:
    """The K3 estimate between the behaviour and the reference policy, per action token; NaN without action tokens."""
    columns = zip(table.frame["action_mask"], table.frame["logprobs"], table.per_token["reference"], strict=True)
    terms = []
    for mask, logprobs, reference in columns:
        acted = torch.tensor(list(mask), dtype=torch.bool)
        terms.append(k3(torch.tensor(list(logprobs), dtype=torch.float32)[acted], reference[: len(acted)][acted]))
    return float(torch.cat(terms).mean()) if terms else math.nan


def _last_discount(config: GaeAdvantageConfig) -> float:
    """The discount from the last action to the state after it."""
    return config.gamma if config.granularity == "token" else config.turn_gamma


def _divergences(config: PolicyGradientConfig, table: TrajectoryTable) -> list[Tensor]:
    """The KL estimate between behaviour and reference policy of each row's tokens [T]; 0 off the actions or without a KL."""
    if "reference" not in table.per_token:
        return [torch.zeros(len(mask)) for mask in table.frame["action_mask"]]
    found = []
    columns = zip(table.frame["action_mask"], table.frame["logprobs"], table.per_token["reference"], strict=True)
    for mask, logprobs, reference in columns:
        acted = torch.tensor(list(mask))
        sampled = torch.tensor(list(logprobs), dtype=torch.float32)
        found.append(kl_term(config.kl, sampled, reference[: len(acted)], sampled, acted))
    return found


def _no_signal(config: PolicyGradientConfig, table: TrajectoryTable, rewards: Tensor) -> np.ndarray:
    """Which rows [N] belong to a comparison without variance. The KL in the reward does not count as variance."""
    groups = table.frame["group"].tolist()
    if config.credit.kind == "turn":
        per_turn = turn_advantages(config.advantage, _turn_rewards(table, rewards.tolist()), groups, config.credit.discount)
        with_signal = {group for group, values in zip(groups, per_turn, strict=True) if any(values)}
        return np.array([group not in with_signal for group in groups], dtype=bool)
    whole_batch = isinstance(config.advantage, BatchAdvantageConfig) and config.advantage.center == "batch"
    return zero_variance(rewards, [0] * len(groups) if whole_batch else groups).numpy()


def _turn_rewards(table: TrajectoryTable, rewards: Sequence[float]) -> list[list[float]]:
    """The reward of each turn: as scored, with the rest of the total on the last turn."""
    given = table.frame["turn_rewards"].tolist() if "turn_rewards" in table.frame else [None] * len(table)
    per_turn = []
    for mask, forks, total, scored in zip(table.frame["action_mask"], forks_of(table.frame), rewards, given, strict=True):
        turns = [0.0] * (max(turn_numbers(list(mask), forks)) + 1)
        for number, reward in enumerate(scored if scored is not None else []):
            turns[min(number, len(turns) - 1)] += float(reward)
        turns[-1] += total - sum(turns)
        per_turn.append(turns)
    return per_turn


def _by_turn(turns: Sequence[int], values: Sequence[float]) -> list[float]:
    return [values[turn] if turn >= 0 else 0.0 for turn in turns]
