"""The cache's attention against plain attention over each row's own keys and values."""

import random

import psutil
import pytest
import torch

from tracewheel.engines import ragged_cache
from tracewheel.engines.ragged_cache import NONE, RaggedCache

HEADS, SHARED, DIM = 4, 2, 8


@pytest.fixture(autouse=True)
def _growing(monkeypatch):
    """Buffers that begin small, so that they grow in tests."""
    monkeypatch.setattr(ragged_cache, "SMALLEST", 64)


class Model:
    device, dtype = torch.device("cpu"), torch.float32


class Rows:
    """A cache, and plain tensors with each row's input."""

    def __init__(self, longest=None):
        self.cache = RaggedCache(Model(), longest)
        self.given = {}

    def take(self):
        row = self.cache.take_row()
        self.given[row] = (torch.empty(SHARED, 0, DIM), torch.empty(SHARED, 0, DIM))
        return row

    def read(self, counts, twins=NONE):
        """A pass over rows (row to count) and their twins; the largest difference from plain causal attention, row by row."""
        ordered = sorted(counts.items(), key=lambda pair: (pair[1], pair[0]))
        rows, sizes = [row for row, _ in ordered], [count for _, count in ordered]
        tokens = sum(sizes)
        query, key, value = (torch.randn(heads, tokens, DIM) for heads in (HEADS, SHARED, SHARED))
        starts = [self.given[row][0].shape[1] for row in rows]
        positions = self.cache.begin(rows, sizes, twins)
        wanted = [start + step for start, size in zip(starts, sizes, strict=True) for step in range(size)]
        assert positions.tolist() == [wanted]
        seen = self.cache.attend(0, query, key, value, None)
        worst, begin = 0.0, 0
        for row, size in ordered:
            part = slice(begin, begin + size)
            keys, values = (
                torch.cat([old, new[:, part]], dim=1) for old, new in zip(self.given[row], (key, value), strict=True)
            )
            self.given[row] = (keys, values)
            assert self.cache.lengths[row] == keys.shape[1]
            length = keys.shape[1]
            scores = query[:, part] @ keys.repeat_interleave(HEADS // SHARED, 0).transpose(1, 2) / DIM**0.5
            hidden = torch.arange(length) > (length - size + torch.arange(size))[:, None]
            weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
            own = weights @ values.repeat_interleave(HEADS // SHARED, 0)
            worst = max(worst, float((own.transpose(0, 1) - seen[part]).abs().max()))
            begin += size
        return worst


@pytest.mark.parametrize("block_rows", [1, 3, 64])
@pytest.mark.parametrize("dense", [0.0, 0.5, 1.1], ids=["in place", "as it is", "gathered"])
def test_attention_over_any_rows_with_any_counts(monkeypatch, block_rows, dense):
    """Rows of different lengths, few or many in a pass, chunks together with single tokens, reused rows."""
    monkeypatch.setattr(ragged_cache, "BLOCK_ROWS", block_rows)
    monkeypatch.setattr(ragged_cache, "DENSE", dense)
    torch.manual_seed(0)
    rng = random.Random(1)
    rows = Rows()
    taken = [rows.take() for _ in range(9)]
    assert rows.read({row: 1 + rng.randrange(70) for row in taken}) < 1e-5
    for turn in range(12):
        if turn % 4 == 3:
            gone = taken.pop(rng.randrange(len(taken)))
            rows.cache.free_row(gone)
            taken.append(rows.take())
            assert taken[-1] == gone, "a free row is used before a new one is made"
            assert rows.read({gone: 3}) < 1e-5
        some = rng.sample(taken, 1 + rng.randrange(len(taken)))
        assert rows.read({row: rng.choice([1, 1, 1, 2, 5, 13]) for row in some}) < 1e-5


def test_rows_can_be_copied_and_swapped():
    torch.manual_seed(0)
    rows = Rows()
    for size in (5, 1, 7, 3, 66):
        row = rows.take()
        rows.read({row: size})
    copies = [rows.take(), rows.take()]
    rows.cache.copy(2, copies[0], 7)
    rows.cache.copy(2, copies[1], 4)
    rows.given[copies[0]] = rows.given[2]
    rows.given[copies[1]] = tuple(held[:, :4] for held in rows.given[2])
    rows.cache.free_row(1)
    rows.cache.swap([4, 3], [1, 0])
    rows.given[1], rows.given[4], rows.given[3], rows.given[0] = (rows.given[row] for row in (4, 1, 0, 3))
    assert [rows.cache.lengths[row] for row in (1, 3, 0)] == [66, 5, 3]
    assert rows.read({0: 1, 1: 1, 2: 4, 3: 1, 5: 1, 6: 2}) < 1e-5
    assert rows.take() == 4, "the free row was swapped with row 4"


def test_twins_of_a_row_take_its_keys_and_values():
    """Of several rows of a pass, some with twins; then each goes a way of its own."""
    torch.manual_seed(0)
    rows = Rows()
    lone, first, second, other, third = (rows.take() for _ in range(5))
    twins = {first: [second, third], other: []}
    for counts in ({lone: 2, first: 70, other: 3}, {lone: 1, first: 1, other: 5}):
        assert rows.read(counts, twins) < 1e-5
        rows.given |= dict.fromkeys([second, third], rows.given[first])
        assert {rows.cache.lengths[row] for row in (first, second, third)} == {rows.given[first][0].shape[1]}
    assert rows.read({third: 1, second: 4, lone: 1}) < 1e-5
    assert rows.read(dict.fromkeys([lone, first, second, other, third], 1)) < 1e-5


def test_padding_and_previous_contents_have_no_effect():
    """A reused row and a block with much padding, not even as a NaN."""
    torch.manual_seed(0)
    rows = Rows()
    first, second = rows.take(), rows.take()
    rows.read({first: 40, second: 2})
    for buffers in (rows.cache._keys, rows.cache._values):
        buffers[0][first] = 1e30
    rows.cache.free_row(first)
    assert rows.take() == first
    assert rows.read({first: 3, second: 5}) < 1e-5
    assert rows.read({first: 1, second: 1}) < 1e-5


def test_buffers_grow_to_the_longest_row_and_not_beyond():
    rows = Rows(longest=100)
    row = rows.take()
    for size in (60, 5, 35):
        assert rows.read({row: size}) < 1e-5
    assert rows.cache._keys[0].shape[2] == 100


def test_room_takes_memory_only_as_it_is_written(monkeypatch):
    """Rows and positions that are not used yet take none, nor do they when the buffers grow."""
    monkeypatch.setattr(ragged_cache, "SMALLEST", 1 << 18)
    rows = Rows()
    taken = [rows.take() for _ in range(20)]
    before = psutil.Process().memory_info().rss
    rows.read(dict.fromkeys(taken, 30))
    rows.read({rows.take(): 3})
    buffers = (rows.cache._keys[0], rows.cache._values[0])
    assert [len(buffer) for buffer in buffers] == [40, 40]
    whole = sum(buffer.nbytes for buffer in buffers)
    assert psutil.Process().memory_info().rss - before < whole / 4  # it comes in pages of up to 2 MB


def test_chunks_of_similar_size_form_a_block():
    """Singles are never padded to a chunk's width; a chunk at most to twice its own."""
    blocks = ragged_cache.plan_blocks(
        range(7), [1, 1, 2, 3, 4, 9, 40], [5, 6, 7, 8, 9, 10, 50], torch.float32, torch.device("cpu")
    )
    assert [(block.begin, block.end, block.tokens.shape[1], block.longest) for block in blocks] == [
        (0, 2, 1, 6),
        (2, 11, 4, 9),
        (11, 20, 9, 10),
        (20, 60, 40, 50),
    ]


def test_a_row_that_was_just_taken_can_be_swapped():
    torch.manual_seed(0)
    rows = Rows()
    for size in (5, 9):
        rows.read({rows.take(): size})
    new = rows.take()
    rows.cache.swap([new], [0])
    rows.given[0], rows.given[new] = rows.given[new], rows.given[0]
    assert rows.read({0: 4, 1: 1, 2: 1}) < 1e-5


@pytest.mark.parametrize("length", [1, 63, 64, 65, 127, 128, 129])
def test_a_row_of_any_length_can_be_copied_and_swapped(length):
    """Rows that fill their room (64 positions, then the double) too."""
    torch.manual_seed(0)
    rows = Rows()
    source, short, *targets = [rows.take() for _ in range(5)]
    rows.read({source: length, short: 2})
    for target in targets:
        rows.cache.copy(source, target, length)
    rows.given |= dict.fromkeys(targets, rows.given[source])
    rows.cache.swap([targets[0]], [short])
    rows.given[targets[0]], rows.given[short] = rows.given[short], rows.given[targets[0]]
    assert rows.read(dict.fromkeys([source, short, *targets], 1)) < 1e-5
