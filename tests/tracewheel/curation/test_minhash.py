"""MinHash: estimates near the true similarity, similar pairs found, components equal to a plain search."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracewheel.curation.minhash import Partition, band_keys, band_rows, signatures, similar_parts, similarity


def test_equal_sets_have_equal_signatures_and_estimates_are_near_the_truth():
    rng = random.Random(3)
    words = [f"word{number}" for number in range(4000)]
    left, right, true = [], [], []
    for _ in range(200):
        first, shared = rng.sample(words, 80), rng.randint(0, 80)
        second = first[:shared] + rng.sample([word for word in words if word not in first], 80 - shared)
        left.append(first)
        right.append(second)
        true.append(shared / (160 - shared))
    rows = signatures(left + right, 128)
    assert rows.shape == (400, 128)
    assert rows.dtype == np.uint16
    estimates = similarity(rows, np.arange(200), np.arange(200, 400))
    errors = estimates - np.array(true)
    assert abs(errors.mean()) < 0.01
    assert errors.std() < 0.5 / np.sqrt(128)
    assert (signatures([list(reversed(left[0]))], 128) == rows[0]).all()
    assert signatures([], 128).shape == (0, 128)


@pytest.mark.parametrize("threshold", [0.5, 0.6, 0.8, 0.9, 1.0])
def test_a_band_is_as_long_as_the_recall_allows(threshold):
    def recall(rows):
        return 1 - (1 - threshold**rows) ** (128 // rows)

    rows = band_rows(128, threshold)
    assert recall(rows) >= 0.97
    assert rows == 128 or recall(rows + 1) < 0.97
    assert band_keys(signatures([["a"]], 128), threshold).shape == (1, 128 // rows)


def test_only_similar_sets_are_joined():
    rng = random.Random(4)
    words = [f"w{number}" for number in range(100000)]
    base = [rng.sample(words, 60) for _ in range(300)]
    copies = [group[:57] + rng.sample(words, 3) for group in base[:100]]  # similarity 0.9
    distant = [group[:35] + rng.sample(words, 25) for group in base[100:200]]  # similarity 0.41
    parts = Partition(500)
    similar_parts(signatures(base + copies + distant, 128), 0.8, parts)
    joined = [number for number in range(100) if parts.labels[300 + number] == number]
    assert len(joined) >= 97
    assert (parts.labels[400:] == np.arange(400, 500)).all()
    assert (parts.labels[:300] == np.arange(300)).all()


@given(
    st.integers(1, 30).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))
    )
)
def test_parts_are_those_of_a_plain_search(case):
    size, pairs = case
    parts = Partition(size)
    half = len(pairs) // 2
    for some in (pairs[:half], pairs[half:]):
        parts.join(np.array([a for a, _ in some], dtype=np.int64), np.array([b for _, b in some], dtype=np.int64))
    expected = list(range(size))
    for _ in range(size):
        for a, b in pairs:
            expected[a] = expected[b] = min(expected[a], expected[b])
    assert parts.labels.tolist() == expected


def test_equal_keys_join_and_zero_is_no_key():
    parts = Partition(6)
    parts.join_equal(np.array([0, 7, 0, 9, 7, 9], dtype=np.uint64))
    assert parts.labels.tolist() == [0, 1, 2, 3, 1, 3]
