"""The reader of OpenAI chat logs: what it keeps, what it quarantines, and that no input crashes it."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracewheel.core.types import Trace, canonical_json
from tracewheel.traces.json_cutter import Piece
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.log_reader import LogReader
from tracewheel.traces.readers.openai import READER, read, read_usual
from tracewheel.traces.readers.reader import Place
from tracewheel.traces.readers.reading import read_traces
from tracewheel.traces.readers.records import parse_piece, read_or_quarantine
from tracewheel.traces.readers.tools import ToolCache
from tracewheel.traces.spool import Spool

TOOL = {"type": "function", "function": {"name": "list_files", "parameters": {"type": "object", "properties": {}}}}


def parse_line(raw, file, line):
    """Read a line as OpenAI's."""
    with Spool() as spool:
        reader = LogReader("openai", spool)
        (item,) = [*reader.read([Piece(raw, line, 0)], file), *(item for _, item in reader.spooled())]
    return item


def call(call_id="c1", name="list_files", arguments='{"path": "/inbox"}'):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


GOOD = {
    "id": "chat-1",
    "session": "s",
    "user": "u",
    "created": "2026-10-01T08:00:00Z",
    "model": "m",
    "messages": [
        {"role": "system", "content": "You tidy."},
        {"role": "user", "content": "Tidy."},
        {"role": "assistant", "content": None, "tool_calls": [call()]},
        {"role": "tool", "tool_call_id": "c1", "content": "a.log"},
        {"role": "assistant", "content": "Done."},
    ],
    "tools": [TOOL],
    "reward": 1,
    "environment": {"kind": "workspace", "initial_state": {}, "goal": {}},
}


MEMORY = ToolCache()


def encode(record):
    return json.dumps(record).encode()


def changed(change):
    record = copy.deepcopy(GOOD)
    change(record)
    return encode(record)


def test_a_valid_line_is_a_trace():
    trace = parse_line(encode(GOOD), "log.jsonl", 7)
    assert isinstance(trace, Trace)
    assert (trace.id, trace.session, trace.user, trace.created, trace.model) == ("chat-1", "s", "u", GOOD["created"], "m")
    assert (trace.outcome, trace.source_file, trace.source_line) == (1.0, "log.jsonl", 7)
    assert trace.messages == GOOD["messages"]
    assert trace.tools == [TOOL]
    assert trace.environment == GOOD["environment"]
    assert Trace.from_record(trace.to_record()) == trace


def test_only_messages_are_required_and_a_missing_reward_is_not_zero():
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello."}]
    trace = parse_line(encode({"messages": messages}), "log.jsonl", 1)
    assert trace.id.startswith("trace-")
    assert (trace.outcome, trace.environment, trace.session, trace.tools) == (None, None, None, [])
    assert parse_line(encode({"messages": messages}), "log.jsonl", 2).id == trace.id


def test_text_parts_are_joined_and_numbers_may_be_ids():
    def change(record):
        record["messages"][1]["content"] = [{"type": "text", "text": "Ti"}, {"type": "text", "text": "dy."}]
        record["created"] = 1790000000

    trace = parse_line(changed(change), "log.jsonl", 1)
    assert trace.messages[1]["content"] == "Tidy."
    assert trace.created == "2026-09-21T14:13:20Z"


def test_several_calls_a_turn_and_a_last_call_without_a_reply():
    def change(record):
        record["messages"][2]["tool_calls"].append(call("c2"))
        record["messages"].insert(3, {"role": "tool", "tool_call_id": "c2", "content": "b.log"})
        record["messages"][5] = {"role": "assistant", "content": None, "tool_calls": [call("c3", "finish", "{}")]}

    assert isinstance(parse_line(changed(change), "log.jsonl", 1), Trace)


def set_call(**fields):
    return lambda record: record["messages"][2]["tool_calls"][0].update(fields)


def set_arguments(text):
    return lambda record: record["messages"][2]["tool_calls"][0]["function"].update(arguments=text)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", "not JSON"),
        (encode(GOOD)[:300], "not JSON"),
        (encode(GOOD) + b" {}", "not JSON"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b"[" * 100_000, "not JSON"),
        (b'{"messages": ' + b"[" * 80 + b"]" * 80 + b"}", "not JSON"),
        (b'{"reward": NaN}', "not JSON"),
        (b'{"reward": 1e999}', "not JSON"),
        (b'{"reward": 1' + b"0" * 30 + b"}", "not JSON"),
        (b'{"reward": 1' + b"0" * 5000 + b"}", "not JSON"),
        (b'{"id": "\\ud800"}', "not JSON"),
        (b"[]", "not an object"),
        (b'"text"', "not an object"),
        (b"null", "not an object"),
        (b"{}", "no messages"),
        (b'{"messages": []}', "no messages"),
        (b'{"messages": {"role": "user"}}', "no messages"),
        (b'{"messages": ["hello"]}', "message unreadable"),
        (b'{"messages": [{"role": "user", "content": "hello"}]}', "no assistant turn"),
        (changed(lambda r: r["messages"][0].update(role="wizard")), "unknown role"),
        (changed(lambda r: r["messages"][0].pop("role")), "unknown role"),
        (changed(lambda r: r["messages"][0].update(role=["system"])), "unknown role"),
        (changed(lambda r: r["messages"][1].update(content=3)), "content is not text"),
        (changed(lambda r: r["messages"][1].update(content=[{"type": "image_url"}])), "content is not text"),
        (changed(set_call(id=None)), "tool calls unreadable"),
        (changed(set_call(function="list_files")), "tool calls unreadable"),
        (changed(lambda r: r["messages"][2].update(tool_calls="c1")), "tool calls unreadable"),
        (changed(lambda r: r["messages"][2]["tool_calls"].append(call())), "doubled call id"),
        (changed(lambda r: r["messages"][3].update(tool_call_id="c9")), "tool reply without a call"),
        (changed(lambda r: r["messages"][3].pop("tool_call_id")), "tool reply without a call"),
        (changed(lambda r: r["messages"].insert(4, r["messages"][3])), "doubled call id"),
        (changed(lambda r: r["messages"].insert(3, {"role": "system", "content": "Stop."})), "call without a reply"),
        (changed(lambda r: r["messages"].pop(3)), "call without a reply"),
        (changed(lambda r: r.update(tools="list_files")), "tools unreadable"),
        (changed(lambda r: r.update(tools=[{"title": "list_files"}])), "tools unreadable"),
        (changed(lambda r: r.update(environment="workspace")), "environment unreadable"),
        (changed(lambda r: r.update(environment={"goal": {}})), "environment unreadable"),
        (changed(lambda r: r.update(reward="good")), "reward is not a number"),
        (
            changed(lambda r: r.update(tokens={"token_ids": [1, 2], "logprobs": [0.0], "action_mask": [0, 1]})),
            "tokens unreadable",
        ),
    ],
)
def test_an_invalid_line_is_quarantined_with_place_and_reason(raw, reason):
    entry = parse_line(raw, "log.jsonl", 42)
    assert isinstance(entry, Quarantined)
    assert (entry.file, entry.line, entry.reason, entry.raw) == ("log.jsonl", 42, reason, raw)
    record = entry.to_record()
    json.dumps(record).encode()
    assert record.get("raw", "").encode() == raw or record["raw_base64"]


@pytest.mark.parametrize("text", ["{path: /inbox", '["/inbox"]', '{"path": NaN}', "[" * 100_000, '{"path": "\\ud800"}', "null"])
def test_a_call_with_broken_arguments_is_kept_as_logged_and_counted(text):
    trace = parse_line(changed(set_arguments(text)), "log.jsonl", 1)
    assert trace.messages[2]["tool_calls"][0]["function"]["arguments"] == text
    assert trace.info == {"broken_calls": 1}
    assert Trace.from_record(trace.to_record()) == trace


@pytest.mark.parametrize(
    ("given", "text"),
    [({"path": "/in"}, '{"path": "/in"}'), ({}, "{}"), ("", "{}"), (" \n", "{}"), (None, "{}"), (["/in"], '["/in"]')],
)
def test_arguments_that_are_no_text_become_json_text_and_are_counted(given, text):
    trace = parse_line(changed(set_arguments(given)), "log.jsonl", 1)
    assert trace.messages[2]["tool_calls"][0]["function"]["arguments"] == text
    assert trace.info == {"arguments_normalised": 1} | ({"broken_calls": 1} if text.startswith("[") else {})


@pytest.mark.parametrize("extra", [{}, {"note": 1}])
def test_the_agent_may_speak_first_and_the_system_at_any_time(extra):
    """With and without another field: both ways of reading a line agree."""
    greeting, late = {"role": "assistant", "content": "Hello!"}, {"role": "system", "content": "Stop."}
    messages = [greeting, *GOOD["messages"][1:4], late, *GOOD["messages"][4:]]
    trace = parse_line(encode({**GOOD, **extra, "messages": messages}), "log.jsonl", 1)
    assert trace.messages == messages


def test_line_numbers_agree_with_editors(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + encode(GOOD) + b"\r\n\n  \n{\n" + encode(GOOD))
    items = list(read_traces({"log.jsonl": path}))
    assert [type(item) for item in items] == [Trace, Quarantined, Trace]
    assert [items[0].source_line, items[1].line, items[2].source_line] == [1, 4, 5]


def test_an_old_function_call_is_matched_with_its_reply():
    def change(record):
        record["messages"][2] = {"role": "assistant", "content": None, "function_call": call()["function"]}
        record["messages"][3] = {"role": "function", "name": "list_files", "content": "a.log"}
        record["functions"] = [record.pop("tools")[0]["function"]]

    trace = parse_line(changed(change), "log.jsonl", 1)
    turn, reply = trace.messages[2:4]
    assert turn["tool_calls"] == [{**call(), "id": reply["tool_call_id"]}]
    assert "function_call" not in turn
    assert (reply["role"], reply["content"]) == ("tool", "a.log")
    assert trace.tools == [TOOL]


def test_tools_without_schemas_are_inferred_and_marked():
    def change(record):
        del record["tools"]
        record["messages"][2]["tool_calls"].append(call("c2", arguments='{"path": "/", "depth": 2}'))
        record["messages"].insert(4, {"role": "tool", "tool_call_id": "c2", "content": ""})

    trace = parse_line(changed(change), "log.jsonl", 1)
    properties = {"path": {"type": "string"}, "depth": {"type": "integer"}}
    parameters = {"type": "object", "properties": properties, "required": ["path"]}
    assert trace.tools == [{"type": "function", "function": {"name": "list_files", "parameters": parameters}}]
    assert trace.tools_inferred
    assert not parse_line(encode(GOOD), "log.jsonl", 1).tools_inferred


def test_requests_with_their_responses_are_one_conversation():
    request = {"model": "asked", "messages": GOOD["messages"][:2], "tools": [TOOL]}
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": "No.", "reasoning_content": "Hm."},
    }
    record = {"request": request, "response": {"id": "r1", "model": "answered", "created": 1790000000, "choices": [choice]}}
    trace = parse_line(encode(record), "log.jsonl", 1)
    assert trace.messages == [*GOOD["messages"][:2], {"role": "assistant", "content": "No.", "reasoning": "Hm."}]
    assert (trace.id, trace.model, trace.created) == ("r1", "answered", "2026-09-21T14:13:20Z")


def test_tools_may_be_json_text_or_without_their_wrapper():
    for tools in ([TOOL["function"]], json.dumps([TOOL]), json.dumps([TOOL["function"]])):
        trace = parse_line(encode({**GOOD, "tools": tools}), "log.jsonl", 1)
        assert trace.tools == [TOOL] and not trace.tools_inferred


def test_parts_may_hold_their_text_as_a_value():
    """As LLaMA-Factory's data sets do."""
    thought, call = (
        {"type": "reasoning", "value": "Hm."},
        {"type": "tool_call", "value": '{"name": "list_files", "arguments": {}}'},
    )
    messages = [
        {"role": "user", "content": [{"type": "text", "value": "What is there?"}]},
        {"role": "assistant", "content": [thought, call]},
        {"role": "tool", "content": [{"type": "text", "value": "a.txt"}]},
        {"role": "assistant", "content": [{"type": "text", "value": "One file."}]},
    ]
    trace = parse_line(encode({**GOOD, "messages": messages}), "log.jsonl", 1)
    assert [message["content"] for message in trace.messages] == ["What is there?", None, "a.txt", "One file."]
    assert trace.messages[1]["tool_calls"][0]["function"] == {"name": "list_files", "arguments": "{}"}
    assert trace.messages[1]["reasoning"] == "Hm."


def test_other_fields_are_kept_and_aliases_read():
    record = {**GOOD, "trial": 3, "tags": ["a"], "thread_id": "t9", "task_id": 7}
    del record["session"]
    trace = parse_line(encode(record), "log.jsonl", 1)
    assert trace.info == {"trial": 3, "tags": ["a"]}
    assert (trace.session, trace.task) == ("t9", "7")


def test_logged_tokens_are_kept():
    tokens = {"token_ids": [5, 6, 7], "logprobs": [0.0, -0.5, -0.1], "action_mask": [0, 1, 1]}
    assert parse_line(encode({**GOOD, "tokens": tokens}), "log.jsonl", 1).tokens == tokens


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
json_values = st.recursive(
    scalars | st.sampled_from(["assistant", "tool", "c1", "{}"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


def _is_sound(item, raw):
    if isinstance(item, Quarantined):
        assert item.raw == raw
        json.dumps(item.to_record()).encode()
    else:
        canonical_json(item.to_record()).encode()


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_crash_the_reader(raw):
    _is_sound(parse_line(raw, "f", 1), raw)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_mutated_lines_never_crash_the_reader(data):
    """Any value anywhere in a good line may be replaced, and any bytes of it too."""
    record = copy.deepcopy(GOOD)
    node, key = record, data.draw(st.sampled_from(sorted(record)))
    while isinstance(node[key], dict | list) and node[key] and data.draw(st.booleans()):
        node = node[key]
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
    node[key] = data.draw(json_values)
    raw = json.dumps(record).encode()
    start = data.draw(st.integers(0, len(raw)))
    raw = raw[:start] + data.draw(st.binary(max_size=3)) + raw[start + data.draw(st.integers(0, 2)) :]
    _is_sound(parse_line(raw, "f", 1), raw)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_the_fast_path_agrees_with_the_full_reader_or_declines(data):
    """The reader of usual lines must never take what the strict one refuses, nor read it otherwise."""
    record = copy.deepcopy({**GOOD, "task": "t"})
    node, key = record, data.draw(st.sampled_from(sorted(record)))
    while isinstance(node[key], dict | list) and node[key] and data.draw(st.booleans()):
        node = node[key]
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
    node[key] = data.draw(
        json_values | st.just(2**63) | st.just(10**40) | st.sampled_from(['{"n": 1e40}', '{"a": ' * 80 + "1" + "}" * 80])
    )
    is_without = data.draw(st.booleans())
    if is_without:
        del record["tools"], record["environment"]
    raw = json.dumps(record).encode()
    quick = read_usual(raw, "f", 1, MEMORY, record.keys())
    if quick is not None:
        piece = Piece(raw, 1, 0)
        value = parse_piece(piece)
        assert quick == (read_or_quarantine(READER, value, piece, "f") if is_without else read(value, Place("f", 1)))


def test_the_fast_path_takes_usual_lines():
    assert read_usual(encode(GOOD), "f", 1, MEMORY) is not None


def test_without_tools_the_fast_path_takes_lines_with_the_keys_of_one_that_was_recognised():
    record = {key: value for key, value in GOOD.items() if key not in ("tools", "environment")}
    quick = read_usual(encode(record), "f", 1, MEMORY, record.keys())
    assert quick is not None and quick.tools_inferred and [tool["function"]["name"] for tool in quick.tools]
    assert read_usual(encode(record), "f", 1, MEMORY) is None
    assert read_usual(encode({**record, "task": "t"}), "f", 1, MEMORY, record.keys()) is None
