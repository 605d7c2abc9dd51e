"""Requests of Gemini and Bedrock, as pairs or in the invocation log, are joined into conversations."""

import copy
import json
from pathlib import Path

import pytest

from tracewheel.traces.json_cutter import Piece
from tracewheel.traces.readers.log_reader import LogReader
from tracewheel.traces.spool import Spool

SAMPLES = {path.stem: json.loads(path.read_text()) for path in Path(__file__).with_name("samples").glob("*.json")}


def read(*values, document=0):
    """Read values, one a line, or as the elements of one list."""
    pieces = [Piece(json.dumps(value).encode(), number, 0, document) for number, value in enumerate(values, start=1)]
    with Spool() as spool:
        reader = LogReader("auto", spool)
        items = list(reader.read(pieces, "log"))
        return items + [item for _, item in reader.spooled()]


def sample(name):
    return copy.deepcopy(SAMPLES[name])


def said(trace):
    return [(message["role"], message["content"]) for message in trace.messages]


def requests_of(name, key):
    """The requests and responses that a conversation was made by."""
    record = sample(name)
    turns = record.pop(key)
    agents = [number for number, turn in enumerate(turns) if turn["role"] in ("assistant", "model")]
    return [({**record, key: turns[:number]}, turns[number]) for number in agents]


def test_gemini_requests_that_continue_one_another_are_one_conversation():
    pairs = [
        {"request": request, "response": {"candidates": [{"content": said, "finishReason": "STOP"}], "responseId": f"r{number}",
                                          "createTime": f"2026-10-01T08:00:0{number}Z", "modelVersion": "m"},
         "session_id": "conv"}
        for number, (request, said) in enumerate(requests_of("gemini", "contents"))
    ]  # fmt: skip
    flat = [{**pair["request"], **pair["response"]} for pair in pairs]
    for records in (pairs, flat):
        (trace,) = read(*records)
        assert said(trace) == said(read(sample("gemini"))[0])
        assert (trace.id, trace.model, trace.info["requests"]) == ("r1", "m", 2)
        assert trace.tools == read(sample("gemini"))[0].tools
    assert read(*pairs)[0].session == "conv"


def test_entries_of_bedrocks_invocation_log_and_converse_pairs_are_one_conversation():
    entries = [
        {"schemaType": "ModelInvocationLog", "schemaVersion": "1.0", "timestamp": f"2026-10-01T08:00:0{number}Z",
         "requestId": f"x{number}", "operation": "Converse", "modelId": "m", "requestMetadata": {"session_id": "conv"},
         "input": {"inputBodyJson": request},
         "output": {"outputBodyJson": {"output": {"message": said}, "stopReason": "end_turn"}}}
        for number, (request, said) in enumerate(requests_of("bedrock", "messages"))
    ]  # fmt: skip
    pairs = [{"request": entry["input"]["inputBodyJson"], "response": entry["output"]["outputBodyJson"]} for entry in entries]
    (logged,), (paired,) = read(*entries), read(*pairs)
    assert said(logged) == said(paired) == said(read(sample("bedrock"))[0])
    assert (logged.id, logged.session, logged.model, logged.created[:19]) == ("x1", "conv", "m", "2026-10-01T08:00:00")
    assert logged.tools == paired.tools != []


@pytest.mark.parametrize("streamed", [False, True])
def test_invocations_of_anthropics_messages_are_read_from_the_invocation_log(streamed):
    block = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}
    events = [
        {"type": "message_start", "message": {"id": "msg", "type": "message", "role": "assistant", "content": []}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        block,
        {"type": "message_stop"},
    ]
    whole = {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hi"}]}
    body = {"messages": [{"role": "user", "content": "Hello"}], "anthropic_version": "x"}
    entry = {"schemaType": "ModelInvocationLog", "requestId": "x", "modelId": "m", "operation": "InvokeModel"}
    entry |= {"input": {"inputBodyJson": body}, "output": {"outputBodyJson": events if streamed else whole}}
    (trace,) = read(entry)
    assert said(trace) == [("user", "Hello"), ("assistant", "Hi")]
    assert trace.model == "m"
