"""Advantages on one scale across domains, by hand."""

import math

import pandas as pd
import pytest
import torch

from tracewheel.config import PolicyGradientConfig
from tracewheel.core.errors import DataError
from tracewheel.learner.advantages.domain import domain_advantages
from tracewheel.learner.advantages.trajectories import trajectory_advantages
from tracewheel.learner.token_advantages import advantages_by_group
from tracewheel.learner.trajectory_table import TrajectoryTable

NAN = math.nan
# Two groups of domain A, whose rewards differ by 1 and by 0.2; one of B, whose rewards are ten times as wide.
REWARDS = torch.tensor([0.0, 1.0, 0.4, 0.6, 0.0, 10.0], dtype=torch.double)
GROUPS = ["a1", "a1", "a2", "a2", "b1", "b1"]
DOMAINS = ["A"] * 4 + ["B"] * 2


def test_each_domain_is_divided_by_its_own_pooled_deviation():
    """A: centred +-0.5 and +-0.1, sum of squares 0.52 over 4 - 2 = 2: deviation sqrt(0.26). B: +-5, 50 over 1: sqrt(50)."""
    found = domain_advantages(REWARDS, GROUPS, DOMAINS)
    a, b = math.sqrt(0.26) + 1e-4, math.sqrt(50.0) + 1e-4
    assert found.tolist() == pytest.approx([-0.5 / a, 0.5 / a, -0.1 / a, 0.1 / a, -5 / b, 5 / b])


def test_a_domain_s_scale_does_not_matter_and_a_batch_s_deviation_lets_the_loudest_win():
    louder = torch.where(torch.tensor([domain == "B" for domain in DOMAINS]), REWARDS * 10, REWARDS)
    found = domain_advantages(louder, GROUPS, DOMAINS)
    assert found.tolist() == pytest.approx(domain_advantages(REWARDS, GROUPS, DOMAINS).tolist(), rel=1e-3)
    batch = trajectory_advantages(PolicyGradientConfig(advantage={"kind": "batch"}).advantage, louder, GROUPS)
    assert batch[:4].abs().max() < 0.02 < found[:4].abs().min()


def test_groups_without_variance_and_unscored_ones_do_not_count():
    rewards = torch.tensor([0.0, 1.0, 1.0, 1.0, NAN, 0.0], dtype=torch.double)
    found = domain_advantages(rewards, ["g", "g", "h", "h", "g", "i"], ["A"] * 6).tolist()
    one = 0.5 / (math.sqrt(0.5) + 1e-4)
    assert found == pytest.approx([-one, one, 0.0, 0.0, 0.0, 0.0])
    assert found[2:] == [0.0] * 4


def test_equal_weight_gives_each_domain_the_same_share_of_the_loss():
    """Sizes with a signal: A 4 rows of 10 tokens, B 2 rows of 30: 100 in all, so A is multiplied by 50/40, B by 50/60."""
    sizes = torch.tensor([10.0] * 4 + [30.0] * 2)
    plain, equal = domain_advantages(REWARDS, GROUPS, DOMAINS), domain_advantages(REWARDS, GROUPS, DOMAINS, sizes)
    assert (equal / plain).tolist() == pytest.approx([1.25] * 4 + [5 / 6] * 2)
    few = torch.tensor([1000.0] * 4 + [1.0] * 2)
    assert (domain_advantages(REWARDS, GROUPS, DOMAINS, few) / plain)[4:].tolist() == pytest.approx([4.0, 4.0])


def table_of(**columns):
    frame = pd.DataFrame({"group": GROUPS, "reward": REWARDS.tolist(), "total": REWARDS.tolist(), **columns})
    return TrajectoryTable(frame.assign(action_mask=[[0, 1]] * 4 + [[1, 1]] * 2))


def test_the_profile_chooses_the_domain_and_its_weight():
    def found(settings, **columns):
        config = PolicyGradientConfig(kind="grpo", advantage={"kind": "domain", **settings})
        return [row[-1] for row in advantages_by_group(config, table_of(**columns), 0.0)[1]]

    plain = domain_advantages(REWARDS, GROUPS, DOMAINS).tolist()
    assert found({}, environment=DOMAINS, family=["f"] * 6) == pytest.approx(plain)
    assert found({"by": "family"}, family=DOMAINS) == pytest.approx(plain)
    assert found({}) == pytest.approx(domain_advantages(REWARDS, GROUPS, [""] * 6).tolist())
    sizes = torch.tensor([1.0] * 4 + [2.0] * 2)
    equal = domain_advantages(REWARDS, GROUPS, DOMAINS, sizes).tolist()
    assert found({"weight": "equal"}, environment=DOMAINS) == pytest.approx(equal)
    with pytest.raises(DataError, match="name no family"):
        found({"by": "family"})
    with pytest.raises(ValueError, match="credit by turn needs an advantage over groups"):
        PolicyGradientConfig(advantage={"kind": "domain"}, credit={"kind": "turn"})
