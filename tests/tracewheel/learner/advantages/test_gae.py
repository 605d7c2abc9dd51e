"""Generalised advantage estimation and V-trace: by hand, in closed form, and against the recurrences of the papers."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.config import GaeAdvantageConfig
from tracewheel.learner.advantages.gae import gae

NAN = math.nan

# One trajectory: prompt, a turn of two tokens, two observation tokens, a turn of two tokens, padding.
TURNS = torch.tensor([[-1, 0, 0, -1, -1, 1, 1, -1]])
VALUES = torch.tensor([[NAN, 0.1, 0.2, 9.0, NAN, 0.3, 0.4, math.inf]], dtype=torch.double)
REWARDS = torch.tensor([[NAN, 0.0, 0.5, 7.0, NAN, 0.0, 1.0, math.inf]], dtype=torch.double)


def close(actual, expected):
    torch.testing.assert_close(actual, torch.tensor([expected], dtype=torch.double), rtol=0, atol=1e-12)


def test_by_token_by_hand():
    """Inside a turn gamma 0.8, lambda 0.5; across turns gamma 0.9, lambda 0.6.

    delta: 1 - 0.4 = 0.6; 0.8 x 0.4 - 0.3 = 0.02; 0.5 + 0.9 x 0.3 - 0.2 = 0.57; 0.8 x 0.2 - 0.1 = 0.06.
    A: 0.6; 0.02 + 0.4 x 0.6 = 0.26; 0.57 + 0.54 x 0.26 = 0.7104; 0.06 + 0.4 x 0.7104 = 0.34416.
    """
    advantages, returns = gae(REWARDS, VALUES, TURNS, GaeAdvantageConfig(gamma=0.8, lam=0.5, turn_gamma=0.9, turn_lam=0.6))
    close(advantages, [0, 0.34416, 0.7104, 0, 0, 0.26, 0.6, 0])
    close(returns, [0, 0.44416, 0.9104, 0, 0, 0.56, 1.0, 0])


def test_by_turn_by_hand():
    """Turn values 0.1 and 0.3, turn rewards 0.5 and 1; gamma 0.9, lambda 0.6. The settings inside a turn do not matter.

    delta: 1 - 0.3 = 0.7; 0.5 + 0.9 x 0.3 - 0.1 = 0.67. A: 0.7; 0.67 + 0.54 x 0.7 = 1.048.
    """
    config = GaeAdvantageConfig(granularity="turn", gamma=0.8, lam=0.5, turn_gamma=0.9, turn_lam=0.6)
    advantages, returns = gae(REWARDS, VALUES, TURNS, config)
    close(advantages, [0, 1.048, 1.048, 0, 0, 0.7, 0.7, 0])
    close(returns, [0, 1.148, 1.148, 0, 0, 1.0, 1.0, 0])


@pytest.mark.parametrize("granularity", ["token", "turn"])
def test_a_terminal_reward_has_the_closed_form(granularity):
    """With lambda 1 the values cancel: the return of a state is R x gamma^(steps to the end), the advantage that less V."""
    turns = torch.tensor([[-1, 0, 0, 0, -1, 1, -1, -1, 2, 2]])
    values = torch.rand(1, 10, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    rewards = torch.zeros(1, 10, dtype=torch.double)
    rewards[0, 9] = 3.0
    config = GaeAdvantageConfig(granularity=granularity, gamma=0.9, lam=1.0, turn_gamma=0.7, turn_lam=1.0)
    advantages, returns = gae(rewards, values, turns, config)
    g, t = 0.9, 0.7
    factors = {
        "token": [0, g * g * t * t * g, g * t * t * g, t * t * g, 0, t * g, 0, 0, g, 1],
        "turn": [0, t * t, t * t, t * t, 0, t, 0, 0, 1, 1],
    }[granularity]
    close(returns, [3.0 * factor for factor in factors])
    if granularity == "token":
        close(advantages, [3.0 * f - v if f else 0.0 for f, v in zip(factors, values[0].tolist(), strict=True)])
    else:
        first = [0, 1, 1, 1, 0, 5, 0, 0, 8, 8]
        close(advantages, [3.0 * f - float(values[0, p]) if f else 0.0 for f, p in zip(factors, first, strict=True)])


def test_lambda_0_uses_only_the_next_value():
    config = GaeAdvantageConfig(lam=0.0, turn_lam=0.0)
    advantages, _ = gae(REWARDS, VALUES, TURNS, config)
    close(advantages, [0, 0.1, 0.6, 0, 0, 0.1, 0.6, 0])


def test_empty_and_long_rows():
    """A thousand turns of one token: the return of the first is the discounted reward of the last."""
    turns = torch.full((2, 2000), -1)
    turns[1, 1::2] = torch.arange(1000)
    rewards = torch.zeros(2, 2000)
    rewards[1, -1] = 1.0
    config = GaeAdvantageConfig(turn_gamma=0.999, turn_lam=1.0)
    advantages, returns = gae(rewards, torch.zeros(2, 2000), turns, config)
    assert advantages[0].abs().sum() == returns[0].abs().sum() == 0
    assert returns[1, 1].item() == pytest.approx(0.999**999, rel=1e-6)
    assert returns[1, -1].item() == 1.0 and returns[1, 0].item() == 0.0


def test_different_shapes_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        gae(torch.zeros(1, 3), torch.zeros(1, 2), torch.zeros(1, 3, dtype=torch.long), GaeAdvantageConfig())


shares = st.sampled_from([0.0, 0.3, 0.9, 1.0])
configs = st.builds(
    GaeAdvantageConfig,
    granularity=st.sampled_from(["token", "turn"]),
    gamma=shares,
    lam=shares,
    turn_gamma=shares,
    turn_lam=shares,
)


@st.composite
def problems(draw):
    """Rewards, values, log ratios and turns of one row; NaN off the actions."""
    mask = draw(st.lists(st.booleans(), min_size=1, max_size=24))
    numbers, turn, before = [], -1, False
    for sampled in mask:
        turn += sampled and not before
        numbers.append(turn if sampled else -1)
        before = sampled
    element = st.floats(-2, 2)

    def row():
        return [draw(element) if sampled else NAN for sampled in mask]

    return row(), row(), row(), numbers


def actions_of(rewards, values, ratios, turns, config):
    """The actions as (positions, reward, value, log ratio, gamma to the next, lambda to the next)."""
    positions = [[position] for position, turn in enumerate(turns) if turn >= 0]
    if config.granularity == "turn":
        positions = [[p for p, t in enumerate(turns) if t == turn] for turn in range(max(turns) + 1)]
    actions = []
    for number, here in enumerate(positions):
        last = number + 1 == len(positions)
        across = not last and turns[positions[number + 1][0]] != turns[here[0]]
        gamma, lam = (config.turn_gamma, config.turn_lam) if across else (config.gamma, config.lam)
        actions.append((here, sum(rewards[p] for p in here), values[here[0]], sum(ratios[p] for p in here), gamma, lam))
    return actions


def spread(actions, numbers, length):
    row = [0.0] * length
    for (here, *_), number in zip(actions, numbers, strict=True):
        for position in here:
            row[position] = number
    return row


@given(problems(), configs)
def test_gae_is_the_recurrence(problem, config):
    rewards, values, ratios, turns = problem
    actions = actions_of(rewards, values, ratios, turns, config)
    expected, after, next_value = [], 0.0, 0.0
    for _, reward, value, _, gamma, lam in reversed(actions):
        after = reward + gamma * next_value - value + gamma * lam * after
        next_value = value
        expected.append(after)
    expected.reverse()
    tensors = [torch.tensor([each], dtype=torch.double) for each in (rewards, values)]
    advantages, returns = gae(*tensors, torch.tensor([turns]), config)
    close(advantages, spread(actions, expected, len(turns)))
    close(returns, spread(actions, [e + a[2] for e, a in zip(expected, actions, strict=True)], len(turns)))


@given(problems(), st.sampled_from([0.05, 0.5, 3.0]), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from(["token", "turn"]))
def test_vapos_lambdas_are_the_papers(problem, alpha, lam_critic, granularity):
    """The sums of VAPO's equations, term by term: lambda_policy = 1 - 1 / (alpha l), lambda_critic for the returns."""
    rewards, values, ratios, turns = problem
    config = GaeAdvantageConfig(granularity=granularity, length_alpha=alpha, lam_critic=lam_critic, lam=0.1, turn_lam=0.2)
    actions = actions_of(rewards, values, ratios, turns, config)
    value = [action[2] for action in actions] + [0.0]
    delta = [action[1] + value[t + 1] - value[t] for t, action in enumerate(actions)]
    length = len(actions)

    def sums(lam):
        return [sum(lam ** (t - s) * delta[t] for t in range(s, length)) for s in range(length)]

    lam_policy = max(0.0, 1 - 1 / (alpha * length)) if length else 0.0
    tensors = [torch.tensor([each], dtype=torch.double) for each in (rewards, values)]
    advantages, returns = gae(*tensors, torch.tensor([turns]), config)
    close(advantages, spread(actions, sums(lam_policy), len(turns)))
    close(returns, spread(actions, [a + v for a, v in zip(sums(lam_critic), value, strict=False)], len(turns)))


def test_vapos_length_counts_generated_tokens_alone():
    """100 generated tokens with alpha 0.05: lambda 1 - 1 / 5 = 0.8, whatever lies between the turns."""
    config = GaeAdvantageConfig(length_alpha=0.05)
    found = []
    for observed in (0, 1, 900):
        turns = torch.tensor([[0] * 60 + [-1] * observed + [1 if observed else 0] * 40])
        rewards = torch.zeros(turns.shape)
        rewards[0, -1] = 1.0
        advantages, _ = gae(rewards, torch.zeros(turns.shape), turns, config)
        found.append(advantages[0][turns[0] >= 0])
    assert found[0][-2:].tolist() == pytest.approx([0.8, 1.0])
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
