"""OpenTelemetry's spans: exports, results of tools, several conversations, older conventions; damaged records."""

import copy
import json
from pathlib import Path

import pytest

from tests.tracewheel.traces.readers.logged import RECORDS as CORE
from tests.tracewheel.traces.readers.logged import STORY, conversation, read, samples_in
from tracewheel.traces.quarantine import Quarantined

HERE = Path(__file__).parent
RECORDS, LINES = samples_in(HERE)
SPANS = LINES["otel"]
OTLP = json.loads((HERE / "otlp.json").read_text())


def test_an_otlp_export_is_read_like_a_list_of_spans():
    (exported,), (listed,) = read(OTLP), read(*SPANS)
    assert exported.messages == listed.messages
    assert (exported.id, exported.session, exported.user) == (listed.id, listed.session, listed.user)


def test_a_result_missing_from_later_calls_comes_from_the_tool_span():
    (trace,) = read(*SPANS[:3])
    assert conversation(trace) == STORY[:3]
    (trace,) = read(*SPANS[:2])
    assert conversation(trace) == STORY[:2]


def test_spans_of_two_traces_in_any_order_are_two_traces():
    others = [{**span, "traceId": "t2"} for span in SPANS]
    mixed = [span for pair in zip(reversed(SPANS), others, strict=True) for span in pair]
    first, second = read(*mixed)
    assert [first.id, second.id] == ["t1", "t2"]
    assert conversation(first) == conversation(second) == STORY
    assert (first.source_line, second.source_line) == (1, 2)


def test_another_agents_conversation_is_kept_in_info():
    judge = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Good?"}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "Yes."}]}]),
    }
    (trace,) = read(*SPANS, {**SPANS[1], "spanId": "s9", "attributes": judge})
    assert conversation(trace) == STORY
    assert trace.info["other_conversations"] == [
        [{"role": "user", "content": "Good?"}, {"role": "assistant", "content": "Yes."}]
    ]


EVENTS = [
    {"name": "gen_ai.user.message", "attributes": {"content": "Weather in Rome?"}},
    {"name": "gen_ai.choice", "attributes": {"index": 0, "message": json.dumps(CORE["openai"]["messages"][1])}},
]
NUMBERED = {
    "gen_ai.prompt.0.role": "user",
    "gen_ai.prompt.0.content": "Weather in Rome?",
    "gen_ai.completion.0.role": "assistant",
    "gen_ai.completion.0.tool_calls.0.id": "c1",
    "gen_ai.completion.0.tool_calls.0.name": "weather",
    "gen_ai.completion.0.tool_calls.0.arguments": '{"city": "Rome"}',
}


@pytest.mark.parametrize(("attributes", "events"), [({"gen_ai.system": "x"}, EVENTS), (NUMBERED, [])])
def test_older_span_conventions_are_read(attributes, events):
    (trace,) = read({**SPANS[1], "attributes": attributes, "events": events})
    assert (trace.format, conversation(trace)) == ("otel", STORY[:2])


def damaged(change):
    record = copy.deepcopy(RECORDS["anthropic"])
    change(record)
    return record


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (damaged(lambda r: r["messages"][1]["content"].append({"type": "image"})), "content is not text"),
        (damaged(lambda r: r["messages"][2]["content"][0].update(tool_use_id="c9")), "tool reply without a call"),
        ({**SPANS[0]}, "no messages"),
    ],
)
def test_damaged_records_are_quarantined_with_the_reason(record, reason):
    (item,) = read(record)
    assert isinstance(item, Quarantined)
    assert item.reason == reason
