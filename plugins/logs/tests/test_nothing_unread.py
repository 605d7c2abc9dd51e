"""No kept message of an agent lacks text and calls unless the log has it so: over all readers, and over real files."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tracewheel.traces.readers.logged import read
from tests.tracewheel.traces.readers.test_nothing_unread import SAID, check_other_names, is_lost, messages
from tracewheel.core.types import Trace
from tracewheel.traces.readers.reading import read_traces
from tracewheel.traces.readers.unread import says_something

SAMPLES = json.loads(Path(__file__).with_name("samples.json").read_text())
ALL = {**{name: [record] for name, record in SAMPLES["records"].items()}, **SAMPLES["spans"]}
SHARED = Path(__file__).parents[4] / "shared/traces"


@pytest.mark.parametrize("name", ALL)
def test_text_under_any_other_name_is_read_or_quarantined(name):
    check_other_names(name, ALL[name])


@settings(max_examples=100, derandomize=True)
@given(messages, st.sampled_from(["assistant", "ai", "model"]))
def test_made_messages_are_read_or_quarantined(message, role):
    """An agent's message with texts under any names: it is empty only if all of them are."""
    call = {"type": "GENERATION", "input": {"role": "user", "content": "Rome?"}, "output": {"role": role, **message}}
    (item,) = read({"trace": {"id": "t"}, "observations": [call]})
    assert not (SAID in json.dumps(message) and is_lost(item)), item


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared traces are not beside the checkout")
def test_no_message_of_a_real_log_came_out_empty():
    """Counted in the records themselves, the shared logs have no agent's message without text, calls or thoughts."""
    files = {str(path): path for path in sorted(SHARED.rglob("*.json*")) + sorted(SHARED.rglob("*.traj"))}
    traces = [item for item in read_traces(files) if isinstance(item, Trace)]
    assert len(traces) > 100
    empty = [
        trace.source_file for trace in traces for m in trace.messages if m["role"] == "assistant" and not says_something(m)
    ]
    assert empty == []
