"""What the logs of SDKs and their tracers hold besides one conversation: fields, built-in tools, failures, many traces."""

import copy
import json
from pathlib import Path

import pytest

from tracewheel.core.types import Trace
from tracewheel.traces.json_cutter import Piece
from tracewheel.traces.quarantine import Quarantined
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


def calls(trace):
    """Names and arguments of all calls."""
    functions = [call["function"] for message in trace.messages for call in message.get("tool_calls") or []]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


FIELDS = {
    "openai_responses": {
        "id": "resp_1", "session": "conv", "user": "u1", "created": "2026-10-01T08:00:00.000000Z", "model": "m", "outcome": None
    },
    "openai_agents": {"id": "trace_1", "session": "conv", "user": "u1", "model": "m", "outcome": None},
}  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
def test_fields_of_a_trace(name):
    record = SAMPLES[name]
    (trace,) = read(*record if isinstance(record, list) else [record])
    assert {key: getattr(trace, key) for key in FIELDS[name]} == FIELDS[name]


def test_a_bare_list_of_response_items_is_one_conversation_in_a_document_and_on_a_line():
    record = sample("openai_responses")
    items = [{"role": "user", "content": "Hello"}, *record["request"]["input"][1:], *record["response"]["output"]]
    (on_a_line,), (listed,) = read(items), read(*items, document=1)
    assert on_a_line.format == listed.format == "openai_responses"
    assert said(on_a_line) == said(listed) == [
        ("user", "Hello"), ("assistant", None), ("tool", "sunny"), ("assistant", "It is sunny.")
    ]  # fmt: skip
    assert listed.messages[1]["reasoning"] == "I look."


def test_built_in_tools_are_calls_with_their_results_and_parallel_calls_are_one_turn():
    items = [
        {"role": "user", "content": "Look it up and list the files."},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "rome"}},
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1+1", "container_id": "x",
         "outputs": [{"type": "logs", "logs": "2"}], "status": "completed"},
        {"type": "mcp_call", "id": "m_1", "name": "roll", "server_label": "dice", "arguments": "{\"n\": 2}", "output": "7"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Now the files."}]},
        {"type": "local_shell_call", "id": "l_1", "call_id": "c1", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
        {"type": "local_shell_call_output", "call_id": "c1", "output": "a.txt"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "sunny"}]},
    ]  # fmt: skip
    (trace,) = read(items)
    assert [name for name, _ in calls(trace)] == ["web_search", "code_interpreter", "roll", "local_shell", "weather"]
    assert calls(trace)[2][1] == {"n": 2}
    roles = [message["role"] for message in trace.messages]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant", "tool", "assistant", "tool", "tool"]
    assert trace.messages[7]["content"] == "Now the files."
    assert [message["content"] for message in trace.messages if message["role"] == "tool"][2:] == ["7", "a.txt", "sunny"]


@pytest.mark.parametrize("item", [
    {"type": "item_reference", "id": "rs_1"},
    {"type": "image_generation_call", "id": "i", "result": "aGk="},
    {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_image", "image_url": "x"}]},
])  # fmt: skip
def test_items_that_cannot_be_read_are_quarantined(item):
    record = sample("openai_responses")
    record["request"]["input"].insert(3, item)
    (item,) = read(record)
    assert isinstance(item, Quarantined)
    assert item.reason in ("no messages", "content is not text")


def test_agents_sdk_spans_of_several_traces_in_one_export_are_several_traces():
    parts = sample("openai_agents")
    others = json.loads(json.dumps(parts).replace("trace_1", "trace_2"))
    first, second = read({"data": [*parts[:2], *others, *parts[2:]]})
    assert (first.id, second.id) == ("trace_1", "trace_2")
    assert said(first) == said(second)
    assert isinstance(first, Trace)


def test_agents_sdk_spans_with_only_response_ids_have_no_conversation():
    parts = [part for part in sample("openai_agents") if part.get("span_data", {}).get("type") != "generation"]
    parts.append({**parts[-1], "id": "s5", "span_data": {"type": "response", "response_id": "resp_1", "usage": None}})
    (item,) = read(*parts)
    assert (item.reason, "to_input_list" in item.detail) == ("no messages", True)
