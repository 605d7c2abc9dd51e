"""Trees of tokens: their rows, positions and errors, against a walk from token to token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.core import forks as trees
from tracewheel.core.errors import DataError
from tracewheel.core.types import Trajectory


@st.composite
def forked(draw, most=40):
    """A number of tokens and its forks."""
    length = draw(st.integers(1, most))
    starts = sorted(draw(st.sets(st.integers(0, length - 1), max_size=6)))
    return length, [[start, draw(st.integers(-1, start - 1))] for start in starts]


def walked(before, token):
    path = []
    while token >= 0:
        path.append(token)
        token = before[token]
    return path[::-1]


def test_a_tree_by_hand():
    # 0 1 2 3 4 5, then 6 7 after token 2, then 8 after token 6.
    forks = [[6, 2], [8, 6]]
    assert trees.rows(forks, 9) == [[0, 1, 2, 3, 4, 5], [0, 1, 2, 6, 7], [0, 1, 2, 6, 8]]
    assert trees.positions(forks, 9) == [0, 1, 2, 3, 4, 5, 3, 4, 4]
    assert trees.preceding(forks, 9) == [-1, 0, 1, 2, 3, 4, 2, 6, 6]
    assert trees.ancestry(forks, 9, 8) == [(0, 3), (6, 7), (8, 9)]
    assert trees.longest_row(forks, 9) == 6


def test_without_forks_there_is_one_row():
    assert trees.rows([], 3) == [[0, 1, 2]]
    assert trees.positions([], 3) == [0, 1, 2]
    assert trees.rows([], 0) == [] and trees.longest_row([], 0) == 0


@given(forked())
def test_rows_hold_every_token_after_those_it_follows(tree):
    length, forks = tree
    trees.check_forks(forks, length)
    before = trees.preceding(forks, length)
    leaves = [token for token in range(length) if token not in before]
    assert trees.rows(forks, length) == [walked(before, leaf) for leaf in leaves]
    assert trees.positions(forks, length) == [len(walked(before, token)) - 1 for token in range(length)]
    assert trees.longest_row(forks, length) == max(map(len, trees.rows(forks, length)))
    for token in range(length):
        assert [i for piece in trees.ancestry(forks, length, token) for i in range(*piece)] == walked(before, token)


@pytest.mark.parametrize(
    ("forks", "message"),
    [
        ([[5, 1]], "outside the trajectory's 5 tokens"),
        ([[2, 2]], "not before its start"),
        ([[2, 4]], "not before its start"),
        ([[3, 1], [3, 0]], "does not start after"),
        ([[3, -2]], "not before its start"),
    ],
)
def test_forks_that_are_no_tree_are_refused(forks, message):
    with pytest.raises(DataError, match=message):
        trees.check_forks(forks, 5)


def test_forks_that_cannot_be_read_are_refused():
    with pytest.raises(DataError, match="no list of"):
        trees.read_forks("[1, 2]")


def trajectory(**changed):
    fields = {
        "id": "a", "task_id": "t", "group": "t", "sample": 0, "seed": 1, "policy_version": 0, "temperature": 1.0,
        "token_ids": [1, 2, 3], "action_mask": [0, 1, 1], "logprobs": [0.0, -1.0, -1.0], "turns": [], "final_state": {},
        "messages": [], "stop_reason": "finished",
    }  # fmt: skip
    return Trajectory(**{**fields, **changed})


def test_forks_are_stored_with_the_trajectory():
    stored = trajectory(forks=[[2, 0]])
    assert Trajectory.from_record(stored.to_record()) == stored


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_trajectory_stored_before_there_were_forks_has_none(missing):
    row = trajectory().to_record()
    assert Trajectory.from_record({**row, "forks": missing}) == trajectory()
    del row["forks"]
    assert Trajectory.from_record(row) == trajectory()
