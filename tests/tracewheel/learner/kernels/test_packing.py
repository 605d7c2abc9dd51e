"""The packed row: the position of every token, and the segments that each segment attends to."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.learner.kernels.packing import SHORTEST_SHARED, Segment, pack

PROMPT = list(range(100, 120))


def padded(rows):
    longest = max([len(row) for row in rows] + [1])
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    return ids, mask


def visible(packed, row, length):
    """The tokens, and their positions, that the last token of a trajectory attends to, in order."""
    last = packed.index[row, length - 1].item()
    (segment,) = [segment for segment in packed.segments if segment.start <= last < segment.stop]
    places = [*segment.seen, (segment.start, last + 1)]
    order = [place for start, stop in places for place in range(start, stop)]
    return packed.token_ids[0, order].tolist(), packed.position_ids[0, order].tolist()


def test_without_sharing_each_trajectory_is_a_segment():
    packed = pack(*padded([[5, 6, 7], [5, 6], [8]]), share_prefixes=False)
    assert packed.token_ids.tolist() == [[5, 6, 7, 5, 6, 8]]
    assert packed.position_ids.tolist() == [[0, 1, 2, 0, 1, 0]]
    assert packed.segments == (Segment(0, 3), Segment(3, 5), Segment(5, 6))
    assert packed.index.tolist() == [[0, 1, 2], [3, 4, 0], [5, 0, 0]]


def test_a_groups_prompt_is_stored_once():
    packed = pack(*padded([[*PROMPT, 1, 2, 3], [*PROMPT, 4], [*PROMPT, 5, 6], [9, 9]]), share_prefixes=True)
    assert packed.token_ids.numel() == 2 + len(PROMPT) + 3 + 1 + 2
    by_length = {segment.length: segment for segment in packed.segments if segment.seen}
    (prompt,) = {segment.seen for segment in by_length.values()}
    assert set(by_length) == {3, 1, 2} and prompt == ((2, 2 + len(PROMPT)),)
    assert packed.position_ids[0, by_length[3].start : by_length[3].stop].tolist() == [20, 21, 22]


def test_prefixes_and_equal_trajectories():
    rows = [[*PROMPT, 1], [*PROMPT, 1, 7], [*PROMPT, 1], PROMPT]
    packed = pack(*padded(rows), share_prefixes=True)
    assert packed.token_ids.numel() == len(PROMPT) + 3  # the one-token node is too short to share with the longer row
    for number, row in enumerate(rows):
        assert visible(packed, number, len(row)) == (row, list(range(len(row))))
    assert packed.index[0, 20] == packed.index[2, 20] != packed.index[1, 20]


def test_common_turns_are_shared():
    turn = list(range(200, 200 + SHORTEST_SHARED))
    packed = pack(*padded([[*PROMPT, *turn, 1], [*PROMPT, *turn, 2], [*PROMPT, 3]]), share_prefixes=True)
    assert packed.token_ids.numel() == len(PROMPT) + len(turn) + 3
    assert max(len(segment.seen) for segment in packed.segments) == 2


def test_padding_alone_takes_one_token():
    packed = pack(torch.zeros(2, 4, dtype=torch.long), torch.zeros(2, 4, dtype=torch.long), share_prefixes=True)
    assert packed.token_ids.tolist() == [[0]] and packed.segments == (Segment(0, 1),)


beginnings = st.sampled_from([[], PROMPT, PROMPT[:9], PROMPT[:3], [*PROMPT, *range(50, 60)]])
endings = st.lists(st.integers(1, 2), max_size=12)


@given(st.lists(st.tuples(beginnings, endings).map(lambda parts: parts[0] + parts[1]), min_size=1, max_size=6), st.booleans())
def test_every_token_attends_to_its_own_trajectory_only(rows, share_prefixes):
    packed = pack(*padded(rows), share_prefixes=share_prefixes)
    for number, row in enumerate(rows):
        for length in range(1, len(row) + 1):
            assert visible(packed, number, length) == (row[:length], list(range(length)))
    assert packed.token_ids.numel() <= max(sum(len(row) for row in rows), 1)
    assert [segment.start for segment in packed.segments] == [0, *[segment.stop for segment in packed.segments][:-1]]
