"""The leak check: every way for something held out to be trained on is found and named."""

import pandas
import pytest

from tracewheel.curation.leaks import check_leaks
from tracewheel.errors import DataError, LeakError

TASKS = [
    ("t1", "f1", "state1", "goal1", "train"),
    ("t2", "f2", "state2", "goal2", "validation"),
    ("t3", "f3", "state3", "goal3", "held_out"),
    ("t4", "f4", "state4", "goal4", "harder"),
]
EPISODES = [
    ("t1", "train", "u1", "s1"),
    ("t1", "train", None, None),
    ("t2", "validation", "u2", "s2"),
    ("t3", "held_out", "u3", "s3"),
    ("t4", "harder", "u3", None),
    ("t4", "harder", float("nan"), ""),
]


def check(tasks=(), episodes=()):
    check_leaks(
        pandas.DataFrame([*TASKS, *tasks], columns=["id", "fingerprint", "initial_state", "goal", "split"]),
        pandas.DataFrame([*EPISODES, *episodes], columns=["task_id", "split", "user", "session"]),
    )


def test_clean_splits_pass_and_the_test_side_may_share_users():
    check()


@pytest.mark.parametrize(
    ("tasks", "episodes", "named"),
    [
        ([("t3", "f9", "state9", "goal9", "train")], [], ["task t3", "held_out", "train"]),
        ([("t9", "f3", "state9", "goal9", "train")], [], ["fingerprint f3", "t3", "t9"]),
        ([("t9", "f9", "state3", "goal3", "train")], [], ["starting point and goal", "t3", "t9"]),
        ([("t9", "f4", "state9", "goal9", "train")], [], ["fingerprint f4", "harder"]),
        ([("t9", "f3", "state9", "goal9", "validation")], [], ["fingerprint f3", "validation"]),
        ([("t9", "f2", "state9", "goal9", "train")], [], ["fingerprint f2", "validation"]),
        ([], [("t3", "train", None, None)], ["task t3", "train"]),
        ([], [("t1", "train", "u3", None)], ["user u3", "t1", "t3"]),
        ([], [("t1", "train", None, "s3")], ["session s3", "t1", "t3"]),
        ([], [("t2", "validation", "u1", None)], ["user u1", "validation"]),
    ],
)
def test_a_leak_is_an_error_that_names_it(tasks, episodes, named):
    with pytest.raises(LeakError) as caught:
        check(tasks, episodes)
    for text in named:
        assert text in str(caught.value)


def test_many_leaks_are_counted_and_the_first_are_shown():
    tasks = [(f"x{n}", f"same{n}", f"a{n}", "g", split) for n in range(30) for split in ("train", "held_out")]
    with pytest.raises(LeakError, match="and 80 more"):
        check(tasks)


def test_an_unknown_split_is_an_error():
    with pytest.raises(DataError, match="elsewhere"):
        check([("t9", "f9", "s9", "g9", "elsewhere")])
