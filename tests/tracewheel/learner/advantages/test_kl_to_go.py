"""REINFORCE++: the KL penalty to go, whitened over the tokens of the batch."""

import math
import random

import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import ValidationError

from tracewheel.config import PolicyGradientConfig
from tracewheel.learner.advantages.group import kl_to_go_advantages
from tracewheel.learner.token_advantages import advantages_by_group
from tracewheel.learner.trajectory_table import TrajectoryTable

BETA = 0.1


def by_the_paper(rows, center):
    """Equations 8 to 10 of arXiv:2501.03262, one sum for each token; `rows` are (reward, group, mask, policy, reference)."""
    scored = [row for row in rows if math.isfinite(row[0])]
    found = {}
    for number, (reward, group, mask, policy, reference) in enumerate(rows):
        if not math.isfinite(reward):
            continue
        of_group = [other[0] for other in scored if other[1] == group]
        base = sum(of_group) / len(of_group) if center == "group" else 0.0
        for t in range(len(mask)):
            if mask[t]:
                kl = [policy[i] - reference[i] for i in range(t, len(mask)) if mask[i]]
                found[number, t] = reward - base - BETA * sum(kl)
    mean, std = np.mean(list(found.values())), np.std(list(found.values()), ddof=1)
    return [[(found[n, t] - mean) / std if (n, t) in found else 0.0 for t in range(len(row[2]))] for n, row in enumerate(rows)]


def random_rows(seed):
    draw = random.Random(seed)
    rows = []
    for number in range(9):
        length = draw.randint(3, 12)
        mask = [0, *(int(draw.random() < 0.7) for _ in range(length - 2)), 1]
        # As the engine stores them: 0 where the policy sampled nothing.
        policy = [-draw.random() * 3 * m for m in mask]
        reference = [-draw.random() * 3 for _ in mask]
        reward = math.nan if number == 4 else draw.choice([0.0, 0.5, 1.0])
        rows.append((reward, "abc"[number % 3], mask, policy, reference))
    return rows


@pytest.mark.parametrize("center", ["batch", "group"])
@pytest.mark.parametrize("seed", range(4))
def test_it_equals_the_papers_equations(center, seed):
    rows = random_rows(seed)
    rewards, groups, masks, policy, reference = (list(column) for column in zip(*rows, strict=True))
    penalties = [BETA * (torch.tensor(p) - torch.tensor(q)) for p, q in zip(policy, reference, strict=True)]
    found = kl_to_go_advantages(
        torch.tensor(rewards, dtype=torch.double), penalties, [torch.tensor(mask) for mask in masks], groups, center=center
    )
    for ours, theirs in zip(found, by_the_paper(rows, center), strict=True):
        assert ours.tolist() == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("seed", range(2))
def test_the_preset_is_the_papers(seed):
    """From stored and reference log-probabilities, through the profile: what each token of an update is weighted with."""
    rows = [row for row in random_rows(seed) if math.isfinite(row[0])]
    rewards, groups, masks, policy, reference = (list(column) for column in zip(*rows, strict=True))
    frame = pd.DataFrame({"group": groups, "action_mask": masks, "logprobs": policy, "total": rewards, "reward": rewards})
    table = TrajectoryTable(frame, {"reference": [torch.tensor(each) for each in reference]})
    positions, advantages = advantages_by_group(PolicyGradientConfig(kind="reinforce_plus_plus"), table, BETA)
    assert positions.tolist() == list(range(len(rows)))
    for ours, theirs in zip(advantages, by_the_paper(rows, "batch"), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)


def test_a_token_pays_only_for_what_follows_it():
    """Divergences 1 and 3: to go 4 and 3 (reward 0), against none (reward 1); without whitening's scale -0.4 < -0.3 < 1."""
    penalties = [BETA * torch.tensor([0.0, 1.0, 3.0]), torch.zeros(3)]
    masks = [torch.tensor([0, 1, 1])] * 2
    first, second = kl_to_go_advantages(torch.tensor([0.0, 1.0]).double(), penalties, masks, ["a", "b"], center="batch")
    returns = np.array([-0.4, -0.3, 1.0, 1.0])
    expected = (returns - returns.mean()) / returns.std(ddof=1)
    assert [*first[1:], *second[1:]] == pytest.approx(expected.tolist())
    assert first[0] == second[0] == 0.0


def test_it_needs_the_rewards_of_a_batch():
    with pytest.raises(ValidationError, match="'to_go' needs kl.place 'reward', advantage.kind 'batch'"):
        PolicyGradientConfig(kind="rloo", kl={"credit": "to_go"})
