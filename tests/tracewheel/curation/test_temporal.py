"""Splits by time: the test side is the latest, training data is older, components stay whole."""

from collections import Counter

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.config import CurationConfig
from tracewheel.core.errors import DataError
from tracewheel.curation.splits import assign_splits, seen_times

CONFIG = CurationConfig(
    train_tasks=4, validation_tasks=2, held_out_tasks=3, harder_tasks=1, harder_tier=4, min_attempts=1, split="temporal"
)


def frame_of(rows):
    columns = ["id", "tier", "attempts", "component", "first", "last"]
    frame = pandas.DataFrame(rows, columns=columns).assign(family="a")
    for name in ("first", "last"):
        frame[f"{name}_seen"] = pandas.Timestamp("2026-01-01", tz="UTC") + pandas.to_timedelta(frame[name], unit="D")
    return frame


def days(count, tier=2):
    return [(f"t{day:02}", tier, 2, f"c{day}", day, day) for day in range(count)]


def test_the_latest_tasks_are_the_test_side():
    tasks = frame_of([*days(12), ("h", 4, 2, "ch", 11, 11)])
    split = dict(zip(tasks["id"], assign_splits(tasks, CONFIG), strict=True))
    assert {name for name, own in split.items() if own == "held_out"} == {"t11", "t10", "t09"}
    assert split["h"] == "harder"
    assert {name for name, own in split.items() if own == "validation"} == {"t08", "t07"}
    assert {name for name, own in split.items() if own == "train"} == {"t06", "t05", "t04", "t03"}


def test_a_task_tried_again_later_is_not_trained_on():
    rows = days(12)
    rows[5] = ("t05", 2, 2, "c5", 5, 11)
    tasks = frame_of([*rows, ("h", 4, 2, "ch", 11, 11)])
    split = dict(zip(tasks["id"], assign_splits(tasks, CONFIG), strict=True))
    assert split["t05"] == ""
    assert {name for name, own in split.items() if own == "train"} == {"t06", "t04", "t03", "t02"}


def test_too_few_tasks_and_missing_times_say_what_to_do():
    tasks = frame_of([*days(7), ("h", 4, 2, "ch", 6, 6)])
    with pytest.raises(DataError, match=r"train: 2 tasks .* lower curation\.train_tasks"):
        assign_splits(tasks, CONFIG)
    with pytest.raises(DataError, match=r"harder: 0 tasks .* lower curation\.harder_tasks"):
        assign_splits(tasks[tasks["id"] != "h"], CONFIG)
    tasks.loc[0, "last_seen"] = pandas.NaT
    with pytest.raises(DataError, match="1 of 8 tasks have an episode without a time"):
        assign_splits(tasks, CONFIG)


def test_times_of_a_task_are_those_of_its_episodes():
    episodes = pandas.DataFrame(
        [
            ("a", "2026-01-02T00:00:00Z"),
            ("a", "2026-01-01T23:30:00-02:00"),
            ("b", "2026-01-05T00:00:00Z"),
            ("b", None),
            ("c", "yesterday"),
        ],
        columns=["task_id", "created"],
    )
    times = seen_times(episodes)
    assert times.loc["a", "first_seen"] == pandas.Timestamp("2026-01-02T00:00Z")
    assert times.loc["a", "last_seen"] == pandas.Timestamp("2026-01-02T01:30Z")
    assert times.loc[["b", "c"]].isna().all(axis=None)


task_rows = st.lists(
    st.tuples(st.sampled_from((2, 3, 4)), st.integers(0, 12), st.integers(0, 30), st.integers(0, 8)), min_size=10, max_size=60
)


@given(task_rows)
def test_nothing_trained_on_is_as_late_as_what_is_tested_on(rows):
    tasks = frame_of([(f"t{n}", tier, 2, f"c{part}", first, first + more) for n, (tier, part, first, more) in enumerate(rows)])
    try:
        split = assign_splits(tasks, CONFIG)
    except DataError:
        return
    side = split.replace({"held_out": "test", "harder": "test"})
    assert Counter(split[split != ""]) == {"train": 4, "validation": 2, "held_out": 3, "harder": 1}
    assert tasks.loc[side == "train", "last_seen"].max() < tasks.loc[side == "validation", "first_seen"].min()
    assert tasks.loc[side == "validation", "last_seen"].max() < tasks.loc[side == "test", "first_seen"].min()
    used = split != ""
    assert (side[used].groupby(tasks.loc[used, "component"]).nunique() == 1).all()
