"""What tasks of one family and tier tell of each other: rates by hand, and what they do to choices."""

import random

import pytest

from tracewheel.config import SamplerConfig
from tracewheel.sampling.sampler import TaskSampler, pooled

KIN = {f"{family}-{tier}-{number}": (family, tier) for family in ("easy", "hard") for tier in (1, 2) for number in range(10)}
LOW, HIGH = ("hard", 1), ("hard", 2)


def sampler(kin=KIN, **values):
    return TaskSampler(SamplerConfig(**values), sorted(KIN), 0, kin)


def test_a_tier_is_drawn_to_its_family():
    told = pooled({"hard-1-0": (6.0, 2.0), "hard-2-0": (0.0, 8.0), "stranger": (9.0, 9.0)}, KIN, 4.0)
    of_family = 7 / 18
    assert told[LOW] == pytest.approx((4 * (4 * of_family + 6) / 12, 4 * (4 * (1 - of_family) + 2) / 12))
    assert told[HIGH] == pytest.approx((4 * (4 * of_family) / 12, 4 * (4 * (1 - of_family) + 8) / 12))
    assert told["easy", 1] == (0.0, 0.0), "nothing is known of its kin"


def test_kin_never_counts_more_than_its_own_attempts():
    assert sum(pooled({"hard-1-0": (1.0, 1.0)}, KIN, 100.0)[HIGH]) == pytest.approx(2.0)


def test_a_few_rollouts_of_each_family_say_which_untried_tasks_to_prefer():
    apart, together = sampler(), sampler(pooling=4.0)
    for choices in (apart, together):
        for number in (0, 1, 2):
            choices.observe(f"easy-1-{number}", 8, 0)
            choices.observe(f"hard-1-{number}", 2, 6)
    assert apart.weights()["easy-1-9"] == apart.weights()["hard-1-9"]
    weights = together.weights()
    assert weights["easy-1-9"] < 0.25 * weights["hard-1-9"]
    assert weights["easy-2-9"] < 0.5 * weights["hard-2-9"], "the other tier is of the family"


def test_a_task_that_stands_alone_and_one_of_no_known_kin_are_new():
    choices = sampler(kin={}, pooling=4.0)
    choices.observe("hard-1-0", 0, 8)
    assert choices.posterior("hard-1-1") == (1.0, 1.0)
    assert choices.posterior("hard-1-0") == (1.0, 9.0)


def test_a_restored_sampler_pools_as_before():
    choices = sampler(pooling=4.0)
    choices.observe("hard-1-0", 2, 6)
    again = TaskSampler.from_state(SamplerConfig(pooling=4.0), sorted(KIN), 0, choices.to_state(), KIN)
    fallen_back = sampler(pooling=4.0)
    fallen_back.observe("easy-1-0", 2, 6)
    fallen_back.restore(choices.to_state())
    assert again.weights() == choices.weights() == fallen_back.weights()
    assert again.posterior("hard-1-1") != (1.0, 1.0)


def test_families_with_few_failures_are_sampled_less_over_a_run():
    """A policy that solves one family nine times of ten and fails the other as often: the share of the hard one's groups."""

    def share(pooling):
        choices, rng, chosen = sampler(pooling=pooling), random.Random(0), []
        for iteration in range(1, 6):
            for task_id in choices.select(4, iteration):
                solved = sum(rng.random() < (0.9 if task_id.startswith("easy") else 0.1) for _ in range(8))
                choices.observe(task_id, solved, 8 - solved)
                chosen.append(task_id.startswith("hard"))
        return sum(chosen) / len(chosen)

    assert share(4.0) > share(0.0) + 0.15
