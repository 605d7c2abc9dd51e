"""The trajectory buffer: which rows are kept and drawn, and that loading preserves draws."""

import random
from collections import Counter

import pandas as pd
import pytest

from tracewheel.config import BufferConfig
from tracewheel.core.errors import DataError
from tracewheel.learner.trajectory_buffer import ITERATION, VERSION, TrajectoryBuffer


def rows(ids, totals=None, version=0):
    """Rows in the learner's form: trajectories of three tokens, their scores, and a column of the learner."""
    totals = totals or [1.0] * len(ids)
    return pd.DataFrame(
        {
            "id": list(ids),
            "total": totals,
            "policy_version": version,
            "token_ids": [[5, 6, number] for number in range(len(ids))],
            "logprobs": [[0.0, -0.5, -0.25 * number] for number in range(len(ids))],
            "advantage": [float(number) for number in range(len(ids))],
        }
    )


def filled(capacity=100, kind="fifo", **sizes):
    buffer = TrajectoryBuffer(BufferConfig(kind=kind), capacity=capacity, **sizes)
    for iteration in (1, 2, 3):
        buffer.add(rows([f"{iteration}{letter}" for letter in "abcd"], [0.0, 0.5, 1.0, 1.0], version=iteration - 1), iteration)
    return buffer


def test_fifo_draws_the_newest_rows_and_drops_the_oldest():
    drawn = filled().draw(6, 4, random.Random(0))
    assert Counter(drawn[ITERATION]) == {3: 4, 2: 2}
    assert drawn["id"].tolist() == sorted(drawn["id"], key=lambda name: (name[0], name[1])), "in the order they came"
    buffer = filled(capacity=5)
    assert buffer.draw(99, 4, random.Random(0))["id"].tolist() == ["2d", "3a", "3b", "3c", "3d"]


def test_rows_of_one_age_are_drawn_at_random_and_only_from_earlier_iterations():
    buffer = filled()
    seen = {buffer.draw(1, 4, random.Random(seed))["id"][0] for seed in range(40)}
    assert seen == {"3a", "3b", "3c", "3d"}
    assert set(buffer.draw(99, 3, random.Random(0))[ITERATION]) == {1, 2}
    assert buffer.draw(99, 1, random.Random(0)).empty


def test_rows_keep_all_their_columns():
    drawn = filled().draw(99, 4, random.Random(0)).set_index("id")
    assert drawn.loc["2c", "logprobs"] == [0.0, -0.5, -0.5]
    assert drawn.loc["2c", "policy_version"] == 1
    assert drawn.loc["2c", "advantage"] == 2.0


def test_priority_follows_reward_and_age():
    """Two rows of the last iteration with rewards 1 and 0.25, one of the iteration before with reward 1, and a failure.

    With a half-life of one iteration the weights at iteration 3 are 1/2, 1/8, 1/4 and 0.1/2: of 0.925.
    """
    buffer = TrajectoryBuffer(BufferConfig(kind="priority"), half_life=1.0)
    buffer.add(rows(["old"], [1.0]), 1)
    buffer.add(rows(["new", "poor", "failed"], [1.0, 0.25, 0.0]), 2)
    counts = Counter(buffer.draw(1, 3, random.Random(seed))["id"][0] for seed in range(4000))
    for name, weight in {"new": 0.5, "old": 0.25, "poor": 0.125, "failed": 0.05}.items():
        assert counts[name] / 4000 == pytest.approx(weight / 0.925, abs=0.03), name


def test_age_counts_versions_not_iterations():
    """After iteration 3 the run returns to version 1: what was sampled for its update is the newest, in either direction."""
    buffer = filled()
    assert set(buffer.draw(4, 4, random.Random(0))[ITERATION]) == {3}
    assert set(buffer.draw(4, 4, random.Random(0), version=1)[ITERATION]) == {2}
    weighted = filled(kind="priority", half_life=0.05)
    assert set(weighted.draw(3, 4, random.Random(0), version=1)[ITERATION]) == {2}
    buffer.add(rows(["again"], [1.0]), 4, version=1)
    assert set(buffer.draw(5, 5, random.Random(0), version=4)["id"]) >= {"3a", "3b", "3c", "3d"}


def test_a_buffer_of_an_earlier_release_is_read(tmp_path):
    filled().save(tmp_path / "buffer.parquet")
    pd.read_parquet(tmp_path / "buffer.parquet").drop(columns=VERSION).to_parquet(tmp_path / "old.parquet", index=False)
    drawn = TrajectoryBuffer.load(BufferConfig(kind="fifo"), tmp_path / "old.parquet").draw(9, 4, random.Random(0))
    assert drawn[VERSION].tolist() == [iteration - 1 for iteration in drawn[ITERATION]]


def test_a_full_priority_buffer_drops_the_worst_of_the_oldest():
    buffer = TrajectoryBuffer(BufferConfig(kind="priority"), capacity=3)
    buffer.add(rows(["good", "bad", "fair"], [1.0, 0.0, 0.5]), 1)
    buffer.add(rows(["next"], [0.0]), 2)
    assert set(buffer.draw(9, 3, random.Random(0))["id"]) == {"good", "fair", "next"}


def test_very_old_rows_of_equal_reward_are_drawn():
    buffer = TrajectoryBuffer(BufferConfig(kind="priority"), half_life=0.001)
    buffer.add(rows("ab", [0.5, 0.5]), 1)
    assert len(buffer.draw(2, 10_000, random.Random(0))) == 2


def test_unscored_rows_are_dropped_and_known_ids_replaced():
    buffer = TrajectoryBuffer(BufferConfig(kind="fifo"))
    buffer.add(rows("abc", [float("nan"), 1.0, float("inf")]), 1)
    buffer.add(rows("b", [0.25]), 2)
    drawn = buffer.draw(9, 3, random.Random(0))
    assert (drawn["id"].tolist(), drawn["total"].tolist(), drawn[ITERATION].tolist()) == (["b"], [0.25], [2])
    buffer.add(rows("x", [float("nan")]), 3)
    assert len(buffer.draw(9, 9, random.Random(0))) == 1


@pytest.mark.parametrize("kind", ["fifo", "priority"])
@pytest.mark.parametrize("stop", [0, 1, 2, 3])
def test_a_loaded_buffer_draws_as_the_saved_one(kind, stop, tmp_path):
    def go_on(buffer, iterations):
        drawn = []
        for iteration in iterations:
            drawn.append(buffer.draw(3, iteration, random.Random(f"draw-{iteration}")))
            buffer.add(rows([f"{iteration}{letter}" for letter in "abcd"], [0.0, 0.2, 0.7, 1.0]), iteration)
        return drawn

    config = BufferConfig(kind=kind)
    whole = TrajectoryBuffer(config, capacity=6)
    expected = go_on(whole, range(1, 6))
    first = TrajectoryBuffer(config, capacity=6)
    begun = go_on(first, range(1, stop + 1))
    first.save(tmp_path / "buffer.parquet")
    second = TrajectoryBuffer.load(config, tmp_path / "buffer.parquet", capacity=6)
    for got, wanted in zip(begun + go_on(second, range(stop + 1, 6)), expected, strict=True):
        assert got.to_dict("records") == wanted.to_dict("records")
    whole.save(tmp_path / "whole.parquet")
    second.save(tmp_path / "resumed.parquet")
    assert (tmp_path / "whole.parquet").read_bytes() == (tmp_path / "resumed.parquet").read_bytes()


def test_a_file_without_a_buffer_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        TrajectoryBuffer.load(BufferConfig(kind="fifo"), tmp_path / "absent.parquet")
    pd.DataFrame({"id": ["a"]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(DataError, match="other.parquet: no column total"):
        TrajectoryBuffer.load(BufferConfig(kind="fifo"), tmp_path / "other.parquet")
    with pytest.raises(DataError, match="no column logprobs"):
        TrajectoryBuffer(BufferConfig(kind="fifo")).add(rows("a").drop(columns="logprobs"), 1)
