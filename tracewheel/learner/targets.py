"""What each token of an update's rows is to be pushed towards: rewards of tokens, advantages, returns.

The choices are the profile's: which advantage, whose credit, and whether the divergence to the
reference is taken from the reward.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tracewheel.config import BatchAdvantageConfig, GaeAdvantageConfig, PolicyGradientConfig
from tracewheel.learner.advantages import clamped, gae, sample_advantages, turn_advantages, vtrace, zero_variance
from tracewheel.learner.batch import Batch, turn_numbers
from tracewheel.learner.losses import kl_term
from tracewheel.learner.losses.kl import Direction, k3
from tracewheel.learner.per_token import spread
from tracewheel.learner.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence


def group_targets(
    config: PolicyGradientConfig, rows: Rows, kl_weight: float, direction: Direction
) -> tuple[np.ndarray, list[list[float]]]:
    """Advantages that come from comparing the rewards of samples.

    Args:
        config: The learner's.
        rows: The samples, with a finite `reward` each; with the reference's log-probabilities when the KL is
            taken from the reward.
        kl_weight, direction: Weight and direction of that KL.

    Returns:
        The positions of the rows that take part, and for every row the advantage of each of its tokens.
    """
    groups = rows.table["group"].tolist()
    rewards = np.array(rows.table["reward"].tolist())
    plain = torch.from_numpy(rewards)
    silent = _silent(config, rows, plain)
    divergence = _divergence(config, rows, direction) if "reference" in rows.extra else np.zeros(len(rows))
    shaped = torch.from_numpy(rewards - kl_weight * divergence)
    if config.credit.kind == "turn":
        per_turn = turn_advantages(config.advantage, _turn_rewards(rows, shaped.tolist()), groups, config.credit.discount)
        advantages = [_by_turn(mask, values) for mask, values in zip(rows.table["action_mask"], per_turn, strict=True)]
    else:
        values = sample_advantages(config.advantage, shaped, groups)
        advantages = [[value] * len(mask) for mask, value in zip(rows.table["action_mask"], values.tolist(), strict=True)]
    kept = np.ones(len(rows), dtype=bool)
    match config.zero_variance.kind:
        case "skip" | "dynamic":
            kept = ~silent
        case "clamp":
            limited = clamped(plain, groups, config.zero_variance.limit).tolist()
            advantages = [[limited[n]] * len(row) if silent[n] else row for n, row in enumerate(advantages)]
        case "keep":
            advantages = [[0.0] * len(row) if silent[n] else row for n, row in enumerate(advantages)]
    if config.advantage.kind == "success":
        advantages = [[1.0] * len(row) for row in advantages]
        kept = rows.table["total"].to_numpy(dtype="float64") >= config.advantage.threshold
    return np.flatnonzero(kept), advantages


def critic_targets(
    config: PolicyGradientConfig,
    advantage: GaeAdvantageConfig,
    rows: Rows,
    batches: list[Batch],
    kl_weight: float,
    direction: Direction,
) -> tuple[list[Tensor], list[Tensor]]:
    """Advantages and returns [T] of each row, by its own values.

    Args:
        rows: With a finite `reward` each, and `values`; with `reference` when the KL is taken from the reward,
            with `proximal` for V-trace.
        batches: All the rows, in batches.
        kl_weight, direction: Weight and direction of that KL.
    """
    per_turn = _turn_rewards(rows, rows.table["reward"].tolist())
    advantages: list[Tensor] = [torch.zeros(0)] * len(rows)
    returns = list(advantages)
    for batch in batches:
        turns, mask = batch.turns.cpu(), batch.action_mask.cpu()
        earned = torch.zeros(turns.shape)
        for number, position in enumerate(batch.rows.tolist()):
            for turn, reward in enumerate(per_turn[position]):
                earned[number, int(torch.nonzero(turns[number] == turn).max())] = reward
        if "reference" in rows.extra:
            term = _estimate(
                config, direction, batch.behaviour_logprobs.cpu(), spread(rows.extra["reference"], batch).cpu(), mask
            )
            earned = earned - kl_weight * term
        values = spread(rows.extra["values"], batch).cpu()
        if advantage.vtrace:
            log_ratio = (spread(rows.extra["proximal"], batch).cpu() - batch.behaviour_logprobs.cpu()).masked_fill(
                mask == 0, 0.0
            )
            found = vtrace(earned, values, turns, log_ratio, advantage)
        else:
            found = gae(earned, values, turns, advantage)
        for number, position in enumerate(batch.rows.tolist()):
            advantages[position], returns[position] = found[0][number], found[1][number]
    return advantages, returns


def teacher_targets(rows: Rows) -> list[list[float]]:
    """The teacher's log-probability of each token less the policy's that sampled it."""
    advantages = []
    for mask, logprobs, teacher in zip(rows.table["action_mask"], rows.table["logprobs"], rows.extra["teacher"], strict=True):
        said = teacher[: len(mask)].tolist()
        advantages.append([(t - p) if m else 0.0 for m, p, t in zip(mask, logprobs, said, strict=True)])
    return advantages


def mean_divergence(rows: Rows) -> float:
    """The K3 estimate between the behaviour and the reference policy, per action token; NaN where there is none."""
    columns = zip(rows.table["action_mask"], rows.table["logprobs"], rows.extra["reference"], strict=True)
    terms = []
    for mask, logprobs, reference in columns:
        acted = torch.tensor(list(mask), dtype=torch.bool)
        terms.append(k3(torch.tensor(list(logprobs), dtype=torch.float32)[acted], reference[: len(acted)][acted]))
    return float(torch.cat(terms).mean()) if terms else math.nan


def _divergence(config: PolicyGradientConfig, rows: Rows, direction: Direction) -> np.ndarray:
    """The sum over each row's action tokens of the KL estimate between behaviour and reference policy."""
    sums = []
    for mask, logprobs, reference in zip(
        rows.table["action_mask"], rows.table["logprobs"], rows.extra["reference"], strict=True
    ):
        counted = torch.tensor(list(mask))
        sampled = torch.tensor(list(logprobs), dtype=torch.float32)
        sums.append(float(_estimate(config, direction, sampled, reference[: len(counted)], counted).sum()))
    return np.array(sums)


def _silent(config: PolicyGradientConfig, rows: Rows, rewards: Tensor) -> np.ndarray:
    """Which rows [N] belong to a comparison that says nothing, whatever the KL would add to it."""
    groups = rows.table["group"].tolist()
    if config.credit.kind == "turn":
        per_turn = turn_advantages(config.advantage, _turn_rewards(rows, rewards.tolist()), groups, config.credit.discount)
        speaking = {group for group, values in zip(groups, per_turn, strict=True) if any(values)}
        return np.array([group not in speaking for group in groups], dtype=bool)
    whole_batch = isinstance(config.advantage, BatchAdvantageConfig) and config.advantage.center == "batch"
    return zero_variance(rewards, [0] * len(groups) if whole_batch else groups).numpy()


def _estimate(config: PolicyGradientConfig, direction: Direction, logprobs: Tensor, reference: Tensor, mask: Tensor) -> Tensor:
    """The divergence of each token when it was sampled; 0 off the mask."""
    return kl_term(config.kl, direction, logprobs, reference, logprobs, mask)


def _turn_rewards(rows: Rows, rewards: Sequence[float]) -> list[list[float]]:
    """The reward of each turn: as scored, the rest of the total on the last; without such scores all on the last."""
    given = rows.table["turn_rewards"].tolist() if "turn_rewards" in rows.table else [None] * len(rows)
    per_turn = []
    for mask, total, scored in zip(rows.table["action_mask"], rewards, given, strict=True):
        turns = [0.0] * (max(turn_numbers(list(mask))) + 1)
        for number, reward in enumerate(scored if scored is not None else []):
            turns[min(number, len(turns) - 1)] += float(reward)
        turns[-1] += total - sum(turns)
        per_turn.append(turns)
    return per_turn


def _by_turn(mask: Sequence[int], values: Sequence[float]) -> list[float]:
    return [values[turn] if turn >= 0 else 0.0 for turn in turn_numbers(list(mask))]
