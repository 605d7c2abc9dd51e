"""Requests of Gemini and Bedrock, as pairs or in the invocation log, are joined into conversations."""

import copy
import json

import pytest

from plugins.logs.tests.test_openai_responses import said
from plugins.logs.tests.test_sdk_formats import sample
from tests.tracewheel.traces.readers.logged import read


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


def test_a_streamed_response_of_gemini_is_put_together():
    request, _ = requests_of("gemini", "contents")[0]
    events = [
        {"candidates": [{"content": {"role": "model", "parts": [part]}}], "modelVersion": "m", "responseId": "r"}
        for part in ({"text": "It is "}, {"text": "sunny."}, {"functionCall": {"name": "weather", "args": {}}})
    ]
    text = "".join(f"data: {json.dumps(event)}\r\n\r\n" for event in events)
    for response in (text, events):
        (trace,) = read({"request": request, "response": response})
        assert (trace.id, said(trace)) == ("r", [("user", "Weather in Rome?"), ("assistant", "It is sunny.")])
        assert trace.messages[1]["tool_calls"][0]["function"]["name"] == "weather"


def test_a_client_may_send_arguments_back_in_another_order():
    requests = requests_of("bedrock", "messages")
    given = {"city": "Rome", "day": "today"}
    requests[0][1]["content"][-1]["toolUse"]["input"] = given
    again = requests[1][0]["messages"][1] = copy.deepcopy(requests[0][1])
    again["content"][-1]["toolUse"]["input"] = dict(reversed(given.items()))
    pairs = [
        {"request": request, "response": {"output": {"message": told}, "stopReason": "end_turn"}} for request, told in requests
    ]
    (trace,) = read(*pairs)
    assert len(trace.messages) == 4


def test_tools_that_run_at_the_provider_are_calls_with_their_results():
    record = sample("gemini")
    parts = record["contents"][3]["parts"]
    parts[:0] = [
        {"toolCall": {"id": "t1", "toolType": "FILE_SEARCH", "args": {"query": "rome"}}, "thoughtSignature": "s"},
        {"toolResponse": {"id": "t1", "toolType": "FILE_SEARCH", "response": {"found": 1}}},
    ]
    (trace,) = read(record)
    assert [message["role"] for message in trace.messages[3:]] == ["assistant", "tool", "assistant"]
    assert trace.messages[3]["tool_calls"][0]["function"]["name"] == "file_search"
    assert trace.messages[4]["content"] == '{"found": 1}'


@pytest.mark.parametrize("name", ["gemini", "bedrock"])
def test_a_request_that_failed_says_so(name):
    request, _ = requests_of(name, "contents" if name == "gemini" else "messages")[0]
    (item,) = read({"request": request, "response": {"message": "no access", "promptFeedback": {"blockReason": "OTHER"}}})
    assert item.reason == "no assistant turn"
