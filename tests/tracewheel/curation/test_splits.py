"""Splits: whole components, right counts, all strata, and a clear error when there is too little."""

from collections import Counter

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.config import CurationConfig
from tracewheel.core.errors import DataError
from tracewheel.curation.splits import assign_splits, components, quotas

CONFIG = CurationConfig(train_tasks=8, validation_tasks=8, held_out_tasks=16, harder_tasks=4, harder_tier=4, min_attempts=2)


def frame_of(rows):
    return pandas.DataFrame(rows, columns=["id", "family", "tier", "attempts", "component"])


def many_tasks(one_off=7, recurring=2, harder=3):
    """For each of 2 families x tiers 2 and 3: `recurring` tasks with attempts and `one_off` without; then the harder tier."""
    rows = []
    for family in ("a", "b"):
        for tier in (2, 3):
            rows += [(f"{family}{tier}-r{n}", family, tier, 4, "recurring") for n in range(recurring)]
            rows += [(f"{family}{tier}-o{n}", family, tier, 1, f"{family}{tier}-o{n}") for n in range(one_off)]
        rows += [(f"{family}4-h{n}", family, 4, 1, f"{family}4-h{n}") for n in range(harder)]
    return frame_of(rows)


def test_tasks_are_linked_by_fingerprint_user_and_session():
    rows = [
        ("t1", "f1", "u1", "s1"),
        ("t1", "f1", "u2", "s2"),
        ("t2", "f2", "u2", "s3"),
        ("t3", "f3", "u3", "s3"),
        ("t4", "f3", None, None),
        ("t5", "f5", None, None),
        ("t6", "f6", float("nan"), ""),
    ]
    found = components(pandas.DataFrame(rows, columns=["task_id", "fingerprint", "user", "session"]))
    assert found == {"t1": "t1", "t2": "t1", "t3": "t1", "t4": "t1", "t5": "t5", "t6": "t6"}


def test_a_user_and_a_session_of_the_same_name_are_not_the_same():
    rows = [("t1", "f1", "x", None), ("t2", "f2", None, "x")]
    assert components(pandas.DataFrame(rows, columns=["task_id", "fingerprint", "user", "session"])) == {"t1": "t1", "t2": "t2"}


def test_counts_and_strata():
    tasks = many_tasks()
    split = assign_splits(tasks, CONFIG)
    assert Counter(split) == {"train": 8, "validation": 8, "held_out": 16, "harder": 4, "": 6}
    strata = Counter(zip(split, tasks["family"], tasks["tier"], strict=True))
    for family in ("a", "b"):
        assert strata["harder", family, 4] == 2
        for tier in (2, 3):
            assert [strata[name, family, tier] for name in ("train", "validation", "held_out")] == [2, 2, 4]
    assert (tasks.loc[split == "train", "attempts"] >= CONFIG.min_attempts).all()


def test_splits_do_not_depend_on_the_order_of_the_logs():
    tasks = many_tasks()
    split = dict(zip(tasks["id"], assign_splits(tasks, CONFIG), strict=True))
    turned = tasks.iloc[::-1].reset_index(drop=True)
    assert dict(zip(turned["id"], assign_splits(turned, CONFIG), strict=True)) == split


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (many_tasks(recurring=1), r"train: 4 tasks .* curation\.train_tasks or curation\.min_attempts"),
        (many_tasks(one_off=1), r"validation: 4 tasks .* 8 are asked for; lower curation\.validation_tasks"),
        (many_tasks(one_off=5), r"held_out: 12 tasks .* lower curation\.held_out_tasks"),
        (many_tasks(harder=1), r"harder: 2 tasks .* lower curation\.harder_tasks \(0: no harder tier\)"),
    ],
)
def test_too_few_tasks_is_an_error_that_says_how_many_and_which_key(tasks, message):
    with pytest.raises(DataError, match=message):
        assign_splits(tasks, CONFIG)


def test_tasks_linked_to_training_are_not_held_out():
    tasks = many_tasks()
    tasks.loc[tasks["id"].str.startswith("a2-o"), "component"] = "recurring"
    with pytest.raises(DataError, match="held_out"):
        assign_splits(tasks, CONFIG)
    split = assign_splits(tasks, CONFIG.model_copy(update={"held_out_tasks": 12}))
    assert set(split[tasks["component"] == "recurring"]) <= {"train", ""}


task_rows = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from((2, 3, 4)), st.sampled_from((1, 4)), st.integers(0, 20)),
    min_size=8,
    max_size=60,
)


@given(task_rows)
def test_a_component_is_never_on_two_sides(rows):
    tasks = frame_of([(f"t{n}", family, tier, attempts, f"c{part}") for n, (family, tier, attempts, part) in enumerate(rows)])
    config = CurationConfig(train_tasks=2, validation_tasks=2, held_out_tasks=2, harder_tasks=1, harder_tier=4, min_attempts=4)
    try:
        split = assign_splits(tasks, config)
    except DataError:
        return
    side = split.replace({"held_out": "test", "harder": "test"})
    used = split != ""
    assert (side[used].groupby(tasks.loc[used, "component"]).nunique() == 1).all()
    assert Counter(split[used]) == {"train": 2, "validation": 2, "held_out": 2, "harder": 1}
    assert (tasks.loc[split == "harder", "tier"] == 4).all()
    assert (tasks.loc[used & (split != "harder"), "tier"] < 4).all()


@given(
    st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(1, 5)), st.integers(1, 40), min_size=1), st.integers(0, 100)
)
def test_quotas_add_up_and_never_ask_for_more_than_there_is(available, wanted):
    shares = quotas(Counter(available), wanted)
    assert sum(shares.values()) == min(wanted, sum(available.values()))
    assert all(0 <= shares[stratum] <= available[stratum] for stratum in available)
