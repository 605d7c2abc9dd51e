"""Pairs out of scored trajectories: where they are cut, which are taken, and what makes none."""

import random

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.core.errors import DataError
from tracewheel.learner.dpo.preferences import divergence, preference_pairs


def table(*rows):
    return pd.DataFrame(rows, columns=["group", "token_ids", "action_mask", "total"])


def pairs_of(rollouts, per_group=9, margin=0.5, seed=0):
    return preference_pairs(rollouts, per_group=per_group, margin=margin, rng=random.Random(seed))


def test_a_pair_is_cut_where_its_tokens_diverge():
    (pair,) = pairs_of(
        table(
            ("task", [1, 2, 7, 8, 9, 4], [0, 0, 1, 1, 0, 1], 0.0),
            ("task", [1, 2, 7, 5, 3], [0, 0, 1, 1, 1], 1.0),
        )
    )
    assert pair.prompt_ids == [1, 2, 7], "the prompt and the token that both sampled"
    assert (pair.chosen.token_ids, pair.chosen.action_mask, pair.chosen.row) == ([5, 3], [1, 1], 1)
    assert (pair.rejected.token_ids, pair.rejected.action_mask, pair.rejected.row) == ([8, 9, 4], [1, 0, 1], 0)
    assert pair.margin == 1.0 and pair.group == "task"


def test_trajectories_of_different_groups_are_not_compared():
    assert pairs_of(table(("one", [1, 2], [0, 1], 1.0), ("other", [1, 3], [0, 1], 0.0))) == []


@pytest.mark.parametrize("reward", [None, float("nan"), float("inf"), -float("inf")])
def test_unscored_trajectories_are_left_out(reward):
    assert pairs_of(table(("task", [1, 2], [0, 1], 1.0), ("task", [1, 3], [0, 1], reward))) == []


def test_rewards_closer_than_the_margin_make_no_pair():
    rollouts = table(("task", [1, 2], [0, 1], 0.9), ("task", [1, 3], [0, 1], 0.5))
    assert pairs_of(rollouts, margin=0.5) == []
    assert len(pairs_of(rollouts, margin=0.4)) == 1


def test_a_prefix_makes_no_pair():
    assert pairs_of(table(("task", [1, 2, 3], [0, 1, 1], 1.0), ("task", [1, 2], [0, 1], 0.0))) == []


@pytest.mark.parametrize("masks", [([0, 1, 0], [0, 1, 0]), ([0, 1, 1], [0, 1, 0])])
def test_trajectories_that_diverge_at_an_observation_make_no_pair(masks):
    """The same words were answered differently: the failure is not the policy's doing."""
    one, other = masks
    assert pairs_of(table(("task", [1, 2, 5], one, 1.0), ("task", [1, 2, 6], other, 0.0))) == []


def test_the_same_tokens_count_once():
    rows = [("task", [1, 2], [0, 1], 1.0)] * 3 + [("task", [1, 3], [0, 1], 0.0)] * 4
    assert len(pairs_of(table(*rows))) == 1


def test_trajectories_are_used_evenly():
    """Two successes, four failures: four pairs use each failure once and each success twice."""
    rows = [("task", [1, token], [0, 1], float(token < 4)) for token in (2, 3, 4, 5, 6, 7)]
    for seed in range(20):
        pairs = pairs_of(table(*rows), per_group=4, seed=seed)
        assert sorted(pair.rejected.row for pair in pairs) == [2, 3, 4, 5]
        assert sorted(pair.chosen.row for pair in pairs) == [0, 0, 1, 1]


def test_wider_margins_come_first_among_unused_pairs():
    rows = [("task", [1, token], [0, 1], reward) for token, reward in ((2, 1.0), (3, 0.4), (4, 0.0), (5, 0.2))]
    for seed in range(20):
        (pair,) = pairs_of(table(*rows), per_group=1, margin=0.3, seed=seed)
        assert (pair.chosen.row, pair.rejected.row) == (0, 2)


def test_the_seed_fixes_the_choice():
    rows = [("task", [1, token], [0, 1], float(token % 2)) for token in range(2, 14)]
    choices = [[(p.chosen.row, p.rejected.row) for p in pairs_of(table(*rows), per_group=3, seed=seed)] for seed in (1, 1, 2)]
    assert choices[0] == choices[1] != choices[2]


def test_columns_of_different_length_are_an_error():
    with pytest.raises(DataError, match="row 0: token_ids and action_mask have 2 and 1 entries"):
        pairs_of(table(("task", [1, 2], [0], 1.0)))


samples = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=6),
        st.sampled_from([0.0, 0.4, 1.0, None]),
    ),
    max_size=8,
)


@given(samples, st.integers(1, 4))
def test_invariants_of_every_pair(rows, per_group):
    rollouts = table(*((group, [9, *(i for i, _ in body)], [0, *(m for _, m in body)], reward) for group, body, reward in rows))
    pairs = pairs_of(rollouts, per_group=per_group)
    for pair in pairs:
        for way in (pair.chosen, pair.rejected):
            assert pair.prompt_ids + way.token_ids == rollouts["token_ids"][way.row], "ids are as sampled"
            assert way.action_mask == rollouts["action_mask"][way.row][len(pair.prompt_ids) :]
            assert way.action_mask[0] == 1 and rollouts["group"][way.row] == pair.group
        assert pair.chosen.token_ids[0] != pair.rejected.token_ids[0]
        assert rollouts["total"][pair.chosen.row] - rollouts["total"][pair.rejected.row] == pair.margin >= 0.5
    for group in ("a", "b"):
        assert sum(pair.group == group for pair in pairs) <= per_group
    assert len({(tuple(p.prompt_ids), tuple(p.chosen.token_ids), tuple(p.rejected.token_ids), p.group) for p in pairs}) == len(
        pairs
    )


@pytest.mark.parametrize(
    ("one", "other", "where"), [([1, 2], [1, 3], 1), ([1], [1, 2], 1), ([], [1], 0), ([1, 2], [1, 2], 2), ([4], [5], 0)]
)
def test_divergence(one, other, where):
    assert divergence(one, other) == divergence(other, one) == where


def forked(*rows):
    return pd.DataFrame(rows, columns=["group", "token_ids", "action_mask", "forks", "total"])


def test_a_pair_keeps_the_forks_of_its_trajectories():
    one, other = [[3, 1], [6, 4]], [[3, 1]]
    (pair,) = pairs_of(
        forked(
            ("task", [1, 2, 3, 5, 7, 8, 9, 4], [0, 0, 1, 0, 1, 1, 0, 1], one, 0.0),
            ("task", [1, 2, 3, 5, 6, 3], [0, 0, 1, 0, 1, 1], other, 1.0),
        )
    )
    assert pair.prompt_ids == [1, 2, 3, 5]
    assert (pair.chosen.forks, pair.rejected.forks) == (other, one)


def test_trajectories_that_part_at_a_fork_make_no_pair():
    rows = (("task", [1, 2, 3, 5, 7], [0, 0, 1, 0, 1], [], 0.0), ("task", [1, 2, 3, 5, 8], [0, 0, 1, 0, 1], [[3, 1]], 1.0))
    assert pairs_of(forked(*rows)) == []
