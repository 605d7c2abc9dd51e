"""Fuzzing of the readers: no change of a record and no bytes of a file crash them."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tracewheel.traces.readers.logged import RECORDS, SPANS, read
from tracewheel.core.types import canonical_json
from tracewheel.traces.quarantine import REASONS, Quarantined
from tracewheel.traces.readers.reading import read_traces

ALL = {**{name: [record] for name, record in RECORDS.items()}, **SPANS}


words = st.sampled_from(
    ["assistant", "tool", "user", "system", "c1", "{}", "[]", '{"a": 1}', "text", "tool_use", "weather", "agent", ""]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


def mutate(data, record):
    """Replace, remove or repeat a value somewhere in a record."""
    node, key = record, data.draw(st.sampled_from(sorted(record) if isinstance(record, dict) else range(len(record))))
    while isinstance(node[key], dict | list) and node[key] and data.draw(st.integers(0, 4)):
        node = node[key]
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
    match data.draw(st.sampled_from(["replace", "replace", "remove", "repeat"])):
        case "remove":
            del node[key]
        case "repeat" if isinstance(node, list):
            node.insert(key, copy.deepcopy(node[key]))
        case _:
            node[key] = data.draw(values)


@settings(max_examples=120)
@pytest.mark.parametrize("name", ALL)
@given(data=st.data())
def test_mutated_records_never_crash_their_reader(name, data):
    """Changes anywhere: a trace that can be stored, or quarantine with a known reason, never an error that was not foreseen."""
    check_mutated(name, ALL[name], data)


def check_mutated(format, sample, data):
    """Change a sample and read it."""
    parts = copy.deepcopy(sample)
    for _ in range(data.draw(st.integers(1, 3))):
        part = data.draw(st.sampled_from(parts))
        if part:
            mutate(data, part)
    for asked in ("auto", format):
        for item in read(*parts, format=asked):
            if isinstance(item, Quarantined):
                assert item.reason in REASONS
                assert "not as" not in item.detail, item.detail
                json.dumps(item.to_record()).encode()
            else:
                canonical_json(item.to_record()).encode()


FILES = [
    json.dumps(list(RECORDS.values()), indent=1).encode(),
    b"\n".join(json.dumps(record).encode() for record in RECORDS.values()),
    json.dumps(RECORDS["openai"]["messages"]).encode(),
]


@settings(max_examples=150)
@given(
    st.binary(max_size=200) | st.sampled_from(FILES),
    st.lists(st.tuples(st.integers(0, 10**5), st.binary(max_size=4), st.integers(0, 3))),
)
def test_arbitrary_bytes_never_crash_the_readers(tmp_path_factory, data, changes):
    """Any bytes, and whole files with bytes changed, added and lost anywhere."""
    path = tmp_path_factory.mktemp("any") / "log"
    path.write_bytes(changed(data, changes))
    check_read(path)


def changed(data, changes):
    """Bytes with some changed, added and lost."""
    for place, inserted, lost in changes:
        place %= len(data) + 1
        data = data[:place] + inserted + data[place + lost :]
    return data


def check_read(path):
    """Read a file of any bytes."""
    for item in read_traces({"log": path}):
        if isinstance(item, Quarantined):
            assert item.reason in REASONS
            assert "not as" not in item.detail, item.detail
            json.dumps(item.to_record()).encode()
        else:
            canonical_json(item.to_record()).encode()
