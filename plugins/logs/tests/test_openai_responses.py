"""What logs of OpenAI's responses API hold besides one conversation: built-in tools, bare lists, saved states."""

import copy
import json
from pathlib import Path

import pytest

from tests.tracewheel.traces.readers.logged import read
from tracewheel.traces.quarantine import Quarantined

SAMPLE = json.loads((Path(__file__).parent / "samples/openai_responses.json").read_text())
FIELDS = {
    "id": "resp_1",
    "session": "conv",
    "user": "u1",
    "created": "2026-10-01T08:00:00.000000Z",
    "model": "m",
    "outcome": None,
}


def said(trace):
    return [(message["role"], message["content"]) for message in trace.messages]


def calls(trace):
    """Names and arguments of all calls."""
    functions = [call["function"] for message in trace.messages for call in message.get("tool_calls") or []]
    return [(function["name"], json.loads(function["arguments"])) for function in functions]


def test_fields_of_a_trace():
    (trace,) = read(SAMPLE)
    assert {key: getattr(trace, key) for key in FIELDS} == FIELDS


def test_a_bare_list_of_response_items_is_one_conversation_in_a_document_and_on_a_line():
    record = copy.deepcopy(SAMPLE)
    items = [{"role": "user", "content": "Hello"}, *record["input"][1:], *record["output"]]
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
])  # fmt: skip
def test_items_that_cannot_be_read_are_quarantined(item):
    record = copy.deepcopy(SAMPLE)
    record["input"].insert(3, item)
    (item,) = read(record)
    assert isinstance(item, Quarantined)
    assert item.reason in ("no messages", "content is not text", "unknown format")


def test_a_saved_state_of_an_agents_run_is_read():
    items = copy.deepcopy(SAMPLE)["input"]
    state = {"$schemaVersion": "1.17", "original_input": "Hello", "current_agent": {"name": "desk"}}
    state["generated_items"] = [{"type": "item", "agent": {}, "raw_item": item} for item in items[1:]]
    (trace,) = read(state)
    assert trace.format == "openai_responses"
    assert said(trace) == [("user", "Hello"), ("assistant", None), ("tool", "sunny")]
    assert calls(trace) == [("weather", {"city": "Rome"})]
