"""Micro-batches: every action token once, within the token cap, in the right place."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.core.errors import DataError
from tracewheel.learner.batch import micro_batches, step_totals
from tracewheel.learner.kernels.packing import pack
from tracewheel.learner.losses.aggregation import StepTotals


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
    assert batch.advantages.tolist() == [[0.0, -1.0, -1.0], [0.0, 0.5, 0.0]]
    assert batch.turns.tolist() == [[-1, 0, 0], [-1, 0, -1]]
    assert batch.temperature.tolist() == [1.0, 1.0]
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
        assert torch.equal(batch.advantages, batch.rows.unsqueeze(-1) * batch.action_mask.float())
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
    assert batch.rows.tolist() == [2, 0] and batch.advantages[:, 1].tolist() == [3.0, 1.0]
    assert micro_batches(table.iloc[[1, 3]], [0.0, 0.0], 100) == []


def test_rows_read_back_from_parquet(tmp_path):
    table = frame(5, 2, 3)
    table.to_parquet(tmp_path / "trajectories.parquet")
    stored = pd.read_parquet(tmp_path / "trajectories.parquet")
    assert isinstance(stored["token_ids"][0], np.ndarray)
    for one, other in zip(micro_batches(table, [1, 2, 3], 8), micro_batches(stored, [1, 2, 3], 8), strict=True):
        expected, found = one.tensors(), other.tensors()
        assert expected.keys() == found.keys()
        for name, tensor in expected.items():
            assert torch.equal(tensor, found[name]), name


def test_behaviour_logprobs_of_masked_tokens_are_zero():
    table = frame(3)
    table.at[0, "action_mask"] = [0, 0, 1]
    (batch,) = micro_batches(table, [1.0], 10)
    assert batch.behaviour_logprobs.tolist() == [[0.0, 0.0, -2.0]]


def test_columns_of_different_length_are_an_error():
    table = frame(3, 3)
    table.at[1, "logprobs"] = [0.0]
    with pytest.raises(DataError, match=r"row 1: .* 3, 3, 1 and 3"):
        micro_batches(table, [0.0, 0.0], 10)


def test_an_action_as_first_token_is_an_error():
    table = frame(3)
    table.at[0, "action_mask"] = [1, 1, 1]
    with pytest.raises(DataError, match="row 0: its first token"):
        micro_batches(table, [0.0], 10)


def test_a_missing_advantage_is_an_error():
    with pytest.raises(ValueError, match="2 trajectories"):
        micro_batches(frame(2, 2), [1.0], 10)


def like_beginnings(*groups: tuple[int, ...]) -> pd.DataFrame:
    """For each group a prompt of 10 tokens, then for each number in it so many tokens that no other row has."""
    rows, fresh = [], iter(range(1000, 100_000))
    for number, lengths in enumerate(groups):
        for length in lengths:
            ids = [100 * number + t for t in range(10)] + [next(fresh) for _ in range(length)]
            rows.append({"token_ids": ids, "action_mask": [0] * 10 + [1] * length, "logprobs": [0.0] * len(ids)})
    return pd.DataFrame(rows, columns=["token_ids", "action_mask", "logprobs"])


def test_packed_batches_are_few_and_balanced():
    batches = micro_batches(frame(9, 8, 7, 6, 5, 5), [0.0] * 6, 20, layout="packed")
    assert [int(batch.attention_mask.sum()) for batch in batches] == [20, 20]
    assert [int(batch.attention_mask.sum()) for batch in micro_batches(frame(30, 4, 4), [0.0] * 3, 10, layout="packed")] == [
        30,
        8,
    ]


def test_common_beginnings_are_batched_together_and_counted_once():
    table = like_beginnings((3, 4, 5), (2, 2, 2)).iloc[[0, 3, 1, 4, 2, 5]]
    batches = micro_batches(table, [0.0] * 6, 22, layout="shared_prefix")
    assert [sorted(batch.rows.tolist()) for batch in batches] == [[0, 2, 4], [1, 3, 5]]
    assert len(micro_batches(table, [0.0] * 6, 38, layout="shared_prefix")) == 1
    assert len(micro_batches(table, [0.0] * 6, 37, layout="shared_prefix")) == 2


@given(
    st.lists(st.lists(st.integers(1, 20), max_size=5).map(tuple), max_size=5),
    st.integers(1, 120),
    st.sampled_from(["packed", "shared_prefix"]),
)
def test_every_layout_has_each_row_once_and_keeps_the_cap(groups, cap, layout):
    table = like_beginnings(*groups)
    batches = micro_batches(table, [0.0] * len(table), cap, layout=layout)
    assert sorted(row for batch in batches for row in batch.rows.tolist()) == list(range(len(table)))
    for batch in batches:
        packed = pack(batch.token_ids, batch.attention_mask, share_prefixes=layout == "shared_prefix")
        assert packed.token_ids.numel() <= cap or len(batch.rows) == 1
        assert int(batch.attention_mask.sum(-1).max()) == batch.token_ids.shape[1]
