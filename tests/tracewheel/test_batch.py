"""Micro-batches: every action token once, within the token cap, in the right place."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.batch import micro_batches, step_totals
from tracewheel.errors import DataError
from tracewheel.losses import StepTotals


def frame(*lengths: int) -> pd.DataFrame:
    """Trajectories of these lengths; all but the first token are actions, ids and log-probabilities tell where from."""
    return pd.DataFrame(
        {
            "token_ids": [[100 * row + t + 1 for t in range(length)] for row, length in enumerate(lengths)],
            "action_mask": [[int(t > 0) for t in range(length)] for length in lengths],
            "logprobs": [[-float(t) for t in range(length)] for length in lengths],
        }
    )


def test_a_batch_by_hand():
    (batch,) = micro_batches(frame(2, 3), [0.5, -1.0], micro_batch_tokens=6, padding=9)
    assert batch.token_ids.tolist() == [[101, 102, 103], [1, 2, 9]]
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.action_mask.tolist() == [[0, 1, 1], [0, 1, 0]]
    assert batch.behaviour_logprobs.tolist() == [[0.0, -1.0, -2.0], [0.0, -1.0, 0.0]]
    assert batch.advantages.tolist() == [-1.0, 0.5]
    assert batch.rows.tolist() == [1, 0]
    assert step_totals([batch]) == StepTotals(tokens=3, sequences=2)


@given(st.lists(st.integers(1, 30), max_size=25), st.integers(1, 100))
def test_each_row_once_and_no_batch_over_the_cap(lengths, micro_batch_tokens):
    advantages = [float(row) for row in range(len(lengths))]
    batches = micro_batches(frame(*lengths), advantages, micro_batch_tokens)
    rows = [row for batch in batches for row in batch.rows.tolist()]
    assert sorted(rows) == [row for row, length in enumerate(lengths) if length > 1]
    for batch in batches:
        assert batch.token_ids.numel() <= micro_batch_tokens or len(batch.rows) == 1
        assert batch.attention_mask.any(0).all(), "no column of padding alone"
        assert batch.advantages.tolist() == [float(row) for row in batch.rows]
        for row, ids, real in zip(batch.rows.tolist(), batch.token_ids, batch.attention_mask, strict=True):
            assert ids[real.bool()].tolist() == [100 * row + t + 1 for t in range(lengths[row])]
            assert not ids[~real.bool()].any()
    again = micro_batches(frame(*lengths), advantages, micro_batch_tokens)
    assert all(torch.equal(a.token_ids, b.token_ids) for a, b in zip(batches, again, strict=True))


def test_trajectories_without_actions_are_left_out():
    table = frame(3, 2, 4)
    table.at[1, "action_mask"] = [0, 0]
    empty = pd.DataFrame([{"token_ids": [], "action_mask": [], "logprobs": []}])
    table = pd.concat([table, empty], ignore_index=True)
    (batch,) = micro_batches(table, [1.0, 2.0, 3.0, 4.0], 100)
    assert batch.rows.tolist() == [2, 0] and batch.advantages.tolist() == [3.0, 1.0]
    assert micro_batches(table.iloc[[1, 3]], [0.0, 0.0], 100) == []


def test_rows_read_back_from_parquet(tmp_path):
    table = frame(5, 2, 3)
    table.to_parquet(tmp_path / "trajectories.parquet")
    stored = pd.read_parquet(tmp_path / "trajectories.parquet")
    assert isinstance(stored["token_ids"][0], np.ndarray)
    for one, other in zip(micro_batches(table, [1, 2, 3], 8), micro_batches(stored, [1, 2, 3], 8), strict=True):
        for name in vars(one):
            assert torch.equal(getattr(one, name), getattr(other, name)), name


def test_behaviour_logprobs_of_masked_tokens_are_zero():
    table = frame(3)
    table.at[0, "action_mask"] = [0, 0, 1]
    (batch,) = micro_batches(table, [1.0], 10)
    assert batch.behaviour_logprobs.tolist() == [[0.0, 0.0, -2.0]]


def test_columns_of_different_length_are_an_error():
    table = frame(3, 3)
    table.at[1, "logprobs"] = [0.0]
    with pytest.raises(DataError, match=r"row 1: .* 3, 3 and 1"):
        micro_batches(table, [0.0, 0.0], 10)


def test_an_action_without_anything_before_it_is_an_error():
    table = frame(3)
    table.at[0, "action_mask"] = [1, 1, 1]
    with pytest.raises(DataError, match="row 0: its first token"):
        micro_batches(table, [0.0], 10)


def test_advantages_must_be_one_for_each_row():
    with pytest.raises(ValueError, match="2 trajectories"):
        micro_batches(frame(2, 2), [1.0], 10)
