"""Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438) over a trajectory's actions. B rows, T tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tracewheel.config import GaeAdvantageConfig
from tracewheel.learner.batch import turn_starts


@dataclass(frozen=True)
class Actions:
    """The actions of B rows, each at one position of [B, T]: a token, or a turn at its first token.

    `here` [B, T] marks the positions of the actions. `rewards` and `values` belong to the actions and are
    0 elsewhere. `discount` and `trace` are gamma and lambda from an action to the next one of the row: 0 at the last
    action, and 1 off the actions, so that a recurrence skips observations.
    """

    here: Tensor
    rewards: Tensor
    values: Tensor
    discount: Tensor
    trace: Tensor

    def following(self, values: Tensor) -> Tensor:
        """`values` [B, T] at the next action of each action, 0 at the last one and where there is no action."""
        length = self.here.shape[1]
        positions = torch.arange(length, device=self.here.device).expand_as(self.here)
        at_or_after = positions.masked_fill(~self.here, length).flip(1).cummin(1).values.flip(1)
        end = torch.full_like(at_or_after[:, :1], length)
        after = torch.cat([at_or_after[:, 1:], end], 1)
        padded = torch.cat([values, torch.zeros_like(values[:, :1])], 1)
        return padded.gather(1, after).masked_fill(~self.here, 0.0)


def discounted_sums(terms: Tensor, factors: Tensor) -> Tensor:
    """x_t = terms_t + factors_t x_(t+1) along the last dimension of [B, T], with x_T = 0.

    By doubling, in log2(T) steps over whole tensors instead of T small ones: after a step of size s, `terms` holds
    the sum of 2s terms and `factors` the product of 2s factors. Near the end, where fewer terms follow, the sum is
    complete and the factor is not read again. There is no division, so factors near 0 are exact.
    """
    terms, factors, size = terms.clone(), factors.clone(), 1
    while size < terms.shape[-1]:
        terms[..., :-size] = terms[..., :-size] + factors[..., :-size] * terms[..., size:]
        factors[..., :-size] = factors[..., :-size] * factors[..., size:]
        size *= 2
    return terms


def turn_sums(values: Tensor, turns: Tensor) -> Tensor:
    """[B, T]: at every token of a turn, the sum of `values` over the turn's tokens; 0 off the actions."""
    slots = turns.clamp(min=-1) + 1
    width = int(slots.max()) + 1 if slots.numel() else 1
    sums = torch.zeros(len(turns), width, dtype=values.dtype, device=values.device)
    sums.scatter_add_(1, slots, values.masked_fill(turns < 0, 0.0))
    return sums.gather(1, slots).masked_fill(turns < 0, 0.0)


def over_turns(values: Tensor, turns: Tensor) -> Tensor:
    """[B, T]: at every token of a turn, the value at the turn's first token; 0 off the actions."""
    return turn_sums(values.masked_fill(~turn_starts(turns), 0.0), turns)


def gae(rewards: Tensor, values: Tensor, turns: Tensor, config: GaeAdvantageConfig) -> tuple[Tensor, Tensor]:
    """Advantages and returns of each action, observation tokens skipped.

    delta_i = r_i + gamma V_(i+1) - V_i and A_i = delta_i + gamma lambda A_(i+1), where i + 1 is the next
    action of the row and V after the last is 0; the return is A_i + V_i. With `granularity` "token" each
    action token is an action, with `gamma` and `lam` inside a turn and `turn_gamma` and `turn_lam` from the
    last token of a turn to the first of the next. With "turn" each turn is one action: its reward is the sum
    over its tokens, its value the one before its first token, and all its tokens get its advantage and return.

    VAPO (Yue et al. 2025, arXiv:2504.05118): with `length_alpha` lambda is 1 - 1 / (length_alpha l) for a row of l
    actions (the paper's length-adaptive GAE), and with `lam_critic` the returns are those of another lambda (its
    decoupled GAE). Both replace `lam` and `turn_lam`.

    Values where `turns` is -1 are not read: they may be anything, NaN included.

    Args:
        rewards: [B, T], of action tokens; a terminal reward is on the last one.
        values: [B, T], the critic's value of the state before each token; detached.
        turns: [B, T], the number of an action token's turn, -1 elsewhere.
        config: granularity and discounts.

    Returns:
        Advantages and returns [B, T] in the type of `values`, 0 off the actions.
    """
    actions = actions_of(rewards, values, turns, config)
    delta = actions.rewards + actions.discount * actions.following(actions.values) - actions.values
    delta = delta.masked_fill(~actions.here, 0.0)
    trace = actions.trace
    if config.length_alpha is not None:
        count = actions.here.double().sum(1, keepdim=True)
        trace = _trace(actions, (1.0 - 1.0 / (config.length_alpha * count.clamp(min=1.0))).clamp(min=0.0))
    advantages = discounted_sums(delta, actions.discount * trace)
    fitted = advantages
    if config.lam_critic is not None:
        fitted = discounted_sums(delta, actions.discount * _trace(actions, torch.full_like(delta[:, :1], config.lam_critic)))
    return to_tokens(actions, advantages, fitted + actions.values, turns, config, values.dtype)


def _trace(actions: Actions, lam: Tensor) -> Tensor:
    """One lambda [B, 1] per row, in place of the actions' own: 0 at the last action, and 1 off the actions."""
    has_next = actions.following(actions.here.double())
    return torch.where(actions.here, lam * has_next, torch.ones_like(has_next))


def actions_of(rewards: Tensor, values: Tensor, turns: Tensor, config: GaeAdvantageConfig) -> Actions:
    """The actions of a batch at the granularity of `config`, in double precision."""
    if not rewards.shape == values.shape == turns.shape or turns.ndim != 2:
        raise ValueError(
            f"rewards, values and turns must have one shape [B, T]: {rewards.shape}, {values.shape}, {turns.shape}"
        )
    observed = turns < 0
    rewards, values = (each.detach().double().masked_fill(observed, 0.0) for each in (rewards, values))
    starts = turn_starts(turns)
    if config.granularity == "turn":
        elsewhere = ~starts
        rewards = turn_sums(rewards, turns).masked_fill(elsewhere, 0.0)
        actions = Actions(starts, rewards, values.masked_fill(elsewhere, 0.0), values, values)
        changes = starts
    else:
        actions = Actions(~observed, rewards, values, values, values)
        changes = actions.following(starts.double()).bool()
    has_next = actions.following(actions.here.double())

    def factor(inside: float, across: float) -> Tensor:
        number = torch.full_like(values, inside).masked_fill(changes, across) * has_next
        return torch.where(actions.here, number, torch.ones_like(number))

    discount, trace = factor(config.gamma, config.turn_gamma), factor(config.lam, config.turn_lam)
    return Actions(actions.here, actions.rewards, actions.values, discount, trace)


def to_tokens(
    actions: Actions, advantages: Tensor, returns: Tensor, turns: Tensor, config: GaeAdvantageConfig, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Copy the numbers of the actions to all their tokens; 0 at other tokens."""
    advantages, returns = (each.masked_fill(~actions.here, 0.0) for each in (advantages, returns))
    if config.granularity == "turn":
        advantages, returns = over_turns(advantages, turns), over_turns(returns, turns)
    return advantages.to(dtype), returns.to(dtype)
