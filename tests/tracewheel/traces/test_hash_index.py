"""The set of hashes behaves like a set, however many there are, and survives the disk."""

from hypothesis import given
from hypothesis import strategies as st

from tracewheel.traces import hash_index
from tracewheel.traces.hash_index import HashIndex, hash_of

few = st.integers(0, 30).map(lambda number: hash_of(str(number).encode()))
# Hashes that share their first half must not be taken for one another.
alike = st.integers(0, 5).map(lambda number: b"\x00" * 8 + number.to_bytes(8, "big"))


@given(st.lists(st.lists(few | alike, max_size=12), max_size=12), st.sampled_from([1, 3, 1000]))
def test_hash_index_agrees_with_a_set(tmp_path_factory, batches, recent):
    usual, hash_index.RECENT = hash_index.RECENT, recent
    try:
        index, known = HashIndex(), set()
        for number, batch in enumerate(batches):
            expected = []
            for value in batch:
                expected.append(value not in known)
                known.add(value)
            assert index.add(batch) == expected
            if number % 3 == 2:
                path = tmp_path_factory.mktemp("index") / "hashes"
                index.save(path)
                assert path.stat().st_size == 16 * len(known)
                index = HashIndex.load(path)
            assert len(index) == len(known)
    finally:
        hash_index.RECENT = usual


def test_boundaries_between_parts_change_the_hash():
    assert hash_of(b"ab", b"c") != hash_of(b"a", b"bc") != hash_of(b"abc")
