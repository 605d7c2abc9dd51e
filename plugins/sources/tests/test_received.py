"""What `tracewheel collect` wrote of real agents: each has the same conversation, whoever instrumented it.

Each asked a model that calls `stock` once, with OpenTelemetry's own instrumentation of openai (2.4b0: no content, EVENT_ONLY,
SPAN_ONLY, SPAN_AND_EVENT), OpenLLMetry's of anthropic (0.62, attributes and events) and of langchain, Pydantic AI 2.68, and
OpenInference's of the Agents SDK (chat completions and responses). They sent it as protobuf, with and without gzip.
"""

import json
from pathlib import Path

import pytest

from tests.tracewheel.traces.readers.logged import read
from tracewheel.core.types import Trace
from tracewheel.traces.quarantine import Quarantined

LINES = [json.loads(line) for line in Path(__file__).with_name("received.jsonl").read_text().splitlines()]
BARE, *TRACES = read(*LINES)


def test_without_captured_content_the_reason_says_how_to_capture_it():
    assert isinstance(BARE, Quarantined)
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" in BARE.detail


@pytest.mark.parametrize("number", range(9))
def test_the_whole_conversation_is_read(number):
    trace = TRACES[number]
    assert isinstance(trace, Trace), trace
    assert len(TRACES) == 9
    said = [(message["role"], message["content"]) for message in trace.messages]
    assert said[0] == ("system", "You look after a tool shed.")
    assert (said[1][0], said[1][1][:25]) == ("user", "How many rakes are there?")
    assert (said[3], said[4]) == (("tool", "7"), ("assistant", "There are seven rakes."))
    (call,) = trace.messages[2]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("stock", {"item": "rake"})
    assert trace.messages[3]["tool_call_id"] == call["id"]


def test_personal_data_left_before_it_was_written_and_users_stay_apart():
    assert "ada@lovelace" not in json.dumps(LINES)
    assert {trace.user for trace in TRACES[:3]} == {"user-0b42f1aa7fa2caca"}
    assert {trace.session for trace in TRACES[:3]} == {"sess-1"}
