"""Batches divided over processes: each row once, and the same number of batches on each."""

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.learner.backends.process_group import shard_batches
from tracewheel.learner.batch import micro_batches, step_totals


def batches_of(lengths, cap):
    """Trajectories of these lengths, the second half of each sampled, cut into batches of `cap` tokens."""
    table = pd.DataFrame(
        {
            "token_ids": [list(range(10 * row, 10 * row + length)) for row, length in enumerate(lengths)],
            "action_mask": [[int(place >= length // 2) for place in range(length)] for length in lengths],
            "logprobs": [[-0.5] * length for length in lengths],
        }
    )
    return micro_batches(table, [1.0] * len(lengths), cap)


@given(
    lengths=st.lists(st.integers(2, 12), min_size=1, max_size=14),
    cap=st.integers(1, 60),
    world_size=st.integers(1, 5),
)
def test_each_row_goes_to_one_process_and_all_get_equally_many_batches(lengths, cap, world_size):
    batches = batches_of(lengths, cap)
    parts = shard_batches(batches, world_size)
    assert len(parts) == world_size and len({len(part) for part in parts}) == 1
    dealt = [batch for part in parts for batch in part]
    rows = [row for batch in dealt for row in batch.rows.tolist() if row >= 0]
    assert sorted(rows) == list(range(len(lengths)))
    whole = step_totals(batches)
    assert sum(int(batch.action_mask.sum()) for batch in dealt) == whole.tokens
    for batch in dealt:
        for row, ids, mask in zip(batch.rows.tolist(), batch.token_ids, batch.attention_mask, strict=True):
            if row >= 0:
                assert ids[mask.bool()].tolist() == list(range(10 * row, 10 * row + lengths[row]))


def test_fillers_are_short_and_have_no_actions():
    """One trajectory on three processes: two of them get a filler."""
    parts = shard_batches(batches_of([9], 100), 3)
    fillers = [batch for part in parts for batch in part if batch.rows.tolist() == [-1]]
    assert len(fillers) == 2
    for filler in fillers:
        assert filler.token_ids.shape == (1, 2)
        assert filler.attention_mask.tolist() == [[1, 1]]
        assert filler.turns.tolist() == [[-1, -1]]
        assert not filler.action_mask.any() and not filler.advantages.any() and not filler.behaviour_logprobs.any()


def test_a_full_batch_is_halved_before_fillers_are_added():
    """One batch of four rows on two processes: two rows each, without the padding of the longest."""
    first, second = shard_batches(batches_of([12, 10, 6, 4], 1000), 2)
    assert [batch.rows.tolist() for batch in first] == [[0, 1]]
    assert [batch.rows.tolist() for batch in second] == [[2, 3]]
    assert second[0].token_ids.shape == (2, 6)


def test_no_batches_give_empty_shards():
    assert shard_batches([], 3) == [[], [], []]


@pytest.mark.parametrize("world_size", [1, 2])
def test_evenly_divisible_batches_are_not_cut(world_size):
    batches = batches_of([8, 8], 8)
    dealt = [batch for part in shard_batches(batches, world_size) for batch in part]
    assert all(torch.equal(one.token_ids, two.token_ids) for one, two in zip(batches, dealt, strict=True))
