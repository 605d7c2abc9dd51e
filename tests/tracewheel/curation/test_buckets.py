"""Rows are read in order, whole tasks in one bucket, nothing lost."""

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.curation.episode_writer import bucket_numbers, in_buckets, parts_of


def test_rows_come_in_the_order_of_their_ranks(tmp_path):
    rng = np.random.default_rng(0)
    tasks = rng.integers(0, 900, size=12_000)
    frame = pd.DataFrame({"name": [f"row-{n}" for n in range(len(tasks))], "task": tasks})
    order = np.lexsort((np.arange(len(tasks)), tasks))
    ranks = np.empty(len(tasks), dtype=np.int64)
    ranks[order] = np.arange(len(tasks))
    left_out = tasks % 7 == 0
    ranks[left_out] = -1
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=1000)
    buckets = bucket_numbers(ranks, tasks, rows=500)
    parts = list(in_buckets(tmp_path / "rows.parquet", buckets, ranks, tmp_path / "scratch"))
    assert len(parts) > 10 and max(map(len, parts)) < 600
    together = pd.concat(parts, ignore_index=True)
    expected = frame[~left_out].sort_values("task", kind="stable").reset_index(drop=True)
    pd.testing.assert_frame_equal(together, expected)
    assert list((tmp_path / "scratch").iterdir()) == []


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans())), st.integers(1, 6))
def test_a_task_is_in_one_bucket_and_buckets_are_in_order(rows, size):
    tasks = np.array([task for task, _ in rows], dtype=np.int64)
    ranks = np.full(len(rows), -1, dtype=np.int64)
    kept = np.flatnonzero([used for _, used in rows])
    ranks[kept[np.argsort(tasks[kept], kind="stable")]] = np.arange(len(kept))
    buckets = bucket_numbers(ranks, tasks, size)
    assert ((buckets >= 0) == (ranks >= 0)).all()
    by_rank = buckets[kept][np.argsort(ranks[kept])]
    assert (np.diff(by_rank) >= 0).all()
    for task in set(tasks[kept].tolist()):
        assert len(set(buckets[kept][tasks[kept] == task].tolist())) == 1
    for number in set(by_rank.tolist()) - {by_rank[-1] if len(by_rank) else -1}:
        assert (by_rank == number).sum() >= size


def test_no_rows_make_no_bucket(tmp_path):
    pd.DataFrame({"name": ["a"]}).to_parquet(tmp_path / "rows.parquet")
    assert list(in_buckets(tmp_path / "rows.parquet", np.array([-1]), np.array([-1]), tmp_path / "scratch")) == []


@given(st.lists(st.integers(0, 4)), st.integers(1, 5))
def test_parts_hold_whole_tasks_and_all_rows_in_order(tasks, rows):
    frame = pd.DataFrame({"task": np.array(sorted(tasks), dtype=np.int64), "row": np.arange(len(tasks))})
    parts = list(parts_of(frame, "task", rows))
    assert [row for part in parts for row in part["row"]] == list(range(len(tasks)))
    assert all(list(part.index) == list(range(len(part))) for part in parts)
    held = [set(part["task"]) for part in parts]
    assert sum(map(len, held)) == len(set(tasks)), "no task is in two parts"
    assert all(len(part) >= rows for part in parts[:-1])
    assert all(len(part[part["task"] != part["task"].iloc[-1]]) < rows for part in parts)
