"""Messages in log records of OTLP, as a collector's file has them beside bare spans (EVENT_ONLY)."""

import json
from pathlib import Path

import pytest

from tests.tracewheel.traces.readers.logged import read
from tracewheel.core.types import Trace
from tracewheel.traces.quarantine import Quarantined

SPANS, LOGS = (json.loads(line) for line in Path(__file__).with_name("collector.jsonl").read_text().splitlines())
(RECORDS,) = (scope["logRecords"] for scope in LOGS["resourceLogs"][0]["scopeLogs"])


@pytest.mark.parametrize("values", [[LOGS], [SPANS, LOGS], [LOGS, SPANS, LOGS, SPANS], RECORDS, RECORDS[::-1]])
def test_the_conversation_is_read_with_its_spans_and_without(values):
    (trace,) = read(*values)
    assert isinstance(trace, Trace), trace
    assert [message["role"] for message in trace.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert trace.messages[-1]["content"] == "There are seven rakes."
    assert (trace.id, trace.session, trace.model) == ("4bf92f3577b34da6a3ce929d0e0e4736", "conv-1", "shed-1")
    assert (trace.info["spans"], trace.tools_inferred) == (2, False)


def logged(name, moment, body, **fields):
    record = {"timeUnixNano": str(moment), "body": {"kvlistValue": {"values": body}}, "traceId": "t1", "spanId": "s1"}
    return {**record, "attributes": [{"key": "event.name", "value": {"stringValue": name}}], **fields}


def test_the_older_events_of_one_message_each_are_read_in_the_order_of_their_times():
    said = [{"key": "content", "value": {"stringValue": "Weather?"}}]
    answer = {"kvlistValue": {"values": [{"key": "content", "value": {"stringValue": "Sunny."}}]}}
    choice = [{"key": "index", "value": {"intValue": "0"}}, {"key": "message", "value": answer}]
    asked = logged("gen_ai.user.message", 1_790_000_000_000_000_001, said)
    told = logged("gen_ai.system.message", 1_790_000_000_000_000_000, said)
    replied = logged("gen_ai.choice", 1_790_000_000_000_000_002, choice)
    (trace,) = read({"resourceLogs": [{"scopeLogs": [{"logRecords": [replied, asked, told]}]}]})
    assert [(message["role"], message["content"]) for message in trace.messages] == [
        ("system", "Weather?"), ("user", "Weather?"), ("assistant", "Sunny.")
    ]  # fmt: skip


def test_records_of_other_events_are_left_out_and_an_export_of_them_alone_is_named():
    other = {"timeUnixNano": "1", "body": {"stringValue": "started"}, "severityNumber": 9, "traceId": "t1", "spanId": "s1"}
    (item,) = read({"resourceLogs": [{"scopeLogs": [{"logRecords": [other]}]}]})
    assert isinstance(item, Quarantined)
    assert item.reason == "no messages"
    (trace,) = read({"resourceLogs": [{"scopeLogs": [{"logRecords": [other, *RECORDS]}]}]})
    assert isinstance(trace, Trace)
