"""Fuzzing of the readers: no change of a record and no bytes of a file crash them."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tracewheel.traces.readers.logged import samples_in
from tests.tracewheel.traces.readers.test_readers_fuzz import changed, check_mutated, check_read

RECORDS, LINES = samples_in(Path(__file__).parent)
OFTEN = json.loads(Path(__file__).with_name("samples.json").read_text())
OFTEN = [*OFTEN["records"], *OFTEN["spans"], "anthropic", "otel"]
OTLP = json.loads(Path(__file__).with_name("otlp.json").read_text())
ALL = {**{name: [record] for name, record in RECORDS.items()}, **LINES}
SDKS = ("openai_agents", "vercel_ai", "langchain", "langgraph", "langsmith", "pydantic_ai", "gemini", "bedrock", "google_adk")
SDKS += ("autogen", "weave")


@settings(max_examples=120)
@pytest.mark.parametrize("name", OFTEN)
@given(data=st.data())
def test_mutated_records_never_crash_their_reader(name, data):
    check_mutated(name, ALL[name], data)


@settings(max_examples=120)
@given(data=st.data())
def test_mutated_exports_of_spans_never_crash_their_reader(data):
    check_mutated("otel", [OTLP], data)


@settings(max_examples=12)
@pytest.mark.parametrize("name", SDKS)
@given(data=st.data())
def test_mutated_records_of_other_samples_never_crash_their_reader(name, data):
    check_mutated(name, ALL[name], data)


FILES = [
    json.dumps(list(RECORDS.values()), indent=1).encode(),
    b"\n".join(json.dumps(record).encode() for record in RECORDS.values()),
    json.dumps(RECORDS["openhands"]["history"], indent=2).encode(),
]


@settings(max_examples=50)
@given(st.sampled_from(FILES), st.lists(st.tuples(st.integers(0, 10**5), st.binary(max_size=4), st.integers(0, 3))))
def test_changed_files_never_crash_the_readers(tmp_path_factory, data, changes):
    path = tmp_path_factory.mktemp("any") / "log"
    path.write_bytes(changed(data, changes))
    check_read(path)
