"""What is kept with a warning, what is refused instead, and how an ingest counts it."""

import base64
import json
from hashlib import sha256

import pytest

from tests.tracewheel.traces.readers.logged import conversation, read
from tracewheel.config import IngestConfig, RedactionConfig
from tracewheel.core.endings import prompt_is_cut
from tracewheel.core.files import read_table
from tracewheel.core.types import Trace
from tracewheel.traces.ingest import ingest
from tracewheel.traces.quarantine import Quarantined, frequent_reasons, shortfall

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
SAID = [
    {"role": "user", "content": "Look."},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
    {"role": "assistant", "content": "One file."},
]
TOOL = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}
LONG = "The agent was told to be careful with files of others. " * 6
DONE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
RESPONSE = {"id": "r1", "object": "response", "output": [DONE]}


def lines(tmp_path, *records):
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    config = IngestConfig(paths=(str(tmp_path / "log.jsonl"),), redaction=RedactionConfig(enabled=False))
    return ingest(config, tmp_path / "out")


def test_tools_that_a_record_offers_where_no_reader_looks_are_a_warning():
    (trace,) = read({"messages": SAID, "session_config": {"offered": [TOOL]}})
    assert (trace.tools_inferred, trace.info["tools_elsewhere"]) == (True, "session_config.offered")
    (trace,) = read({"messages": SAID, "tools": [TOOL]})
    assert not trace.tools_inferred and "tools_elsewhere" not in trace.info


def test_tools_within_json_text_are_a_warning_too():
    offered = json.dumps({"offered": [TOOL, TOOL | {"name": "other", "description": LONG}]})
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    request = {"input": [{"role": "user", "content": "Go."}], "options": offered}
    (trace,) = read({"request": request, "response": RESPONSE | {"output": [call]}})
    assert trace.tools_inferred and trace.info["tools_elsewhere"].endswith("request.options.offered")


def test_stored_traces_with_inferred_tools_are_read_again_without_a_warning(tmp_path):
    arguments = json.dumps({f"option_{number}": number for number in range(12)})
    call = CALL | {"function": {"name": "look", "arguments": arguments}}
    assert lines(tmp_path, {"messages": [SAID[0], SAID[1] | {"tool_calls": [call]}, *SAID[2:]]})["kept"] == 1
    config = IngestConfig(paths=(str(tmp_path / "out" / "traces.parquet"),), redaction=RedactionConfig(enabled=False))
    report = ingest(config, tmp_path / "again")
    assert report["kept"] == 1 and not report.get("tools_elsewhere")
    assert read_table(tmp_path / "again" / "traces.parquet")["tools_inferred"].all()


def test_a_long_text_that_is_neither_conversation_nor_info_is_a_warning():
    request = {"input": [{"role": "user", "content": "Go."}], "prompt_of_the_operator": LONG}
    (trace,) = read({"request": request, "response": RESPONSE})
    assert trace.info["unread_text"].endswith("prompt_of_the_operator")
    (trace,) = read({"messages": SAID, "notes": LONG})
    assert trace.info["notes"] == LONG and "unread_text" not in trace.info


def test_a_conversation_that_begins_with_the_agent_though_the_record_has_who_asked_is_refused():
    record = {"ask": {"turns": [{"role": "user", "content": "List the files."}]}, "response": RESPONSE}
    (item,) = read(record)
    assert isinstance(item, Quarantined) and item.reason == "content was not read"
    assert item.detail == "the conversation begins with the agent, but record.ask.turns[0] has 'List the files.'"


def test_warnings_are_counted_and_most_of_them_refuse_the_ingest(tmp_path):
    greeting = {"messages": [{"role": "assistant", "content": "Hello."}, *SAID], "tools": [TOOL]}
    report = lines(tmp_path, greeting)
    assert (report["kept"], report["agent_first"]) == (1, 1)
    assert shortfall(report) == ""  # somebody asks, later
    report = lines(tmp_path, RESPONSE, greeting | {"id": "g"}, {**RESPONSE, "id": "r2"})
    assert (report["kept"], report["agent_first"], report["without_user"]) == (3, 3, 2)
    assert (
        shortfall(report)
        == "2 of 3 traces begin with the agent, and nobody asks it for anything; see one with `tracewheel data explain`"
    )
    record = {"messages": SAID, "session_config": {"offered": [TOOL]}}
    report = lines(tmp_path, record, {"messages": SAID[:1] + SAID[3:], "tools": [TOOL]}, {**record, "id": "b"})
    assert report["tools_elsewhere"] == 2
    assert shortfall(report).startswith("2 of 3 traces have tools inferred from their calls")


def test_the_reader_that_a_record_only_looks_like_is_not_the_last_that_tries():
    looks = {"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "kind": 3}], "system": "Be short."}
    (item,) = read(looks | {"messages": [{"role": "elder", "content": "Hi."}]})
    assert (item.reason, item.detail) == ("unknown role", "looks like anthropic, but message 1 has the role 'elder'")


IMAGE = b"\x89PNG and so on"
DATA = base64.b64encode(IMAGE).decode()
MARK = f"[image, image/png, {len(IMAGE)} bytes, sha256 {sha256(IMAGE).hexdigest()[:16]}]"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
        {"type": "image", "data": DATA, "mimeType": "image/png"},
        {"type": "image", "image": f"data:image/png;base64,{DATA}"},
    ],
)
def test_an_image_is_a_placeholder_with_kind_size_and_digest(part, tmp_path):
    asked = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]}, SAID[3]]
    (trace,) = read({"messages": asked, "tools": [TOOL]})
    assert isinstance(trace, Trace), trace
    assert trace.messages[0]["content"] == f"What is this?\n{MARK}"
    assert prompt_is_cut(trace.messages)  # no task is made of it
    replied = [*SAID[:2], {"role": "tool", "tool_call_id": "c1", "content": [part]}, SAID[3]]
    (trace,) = read({"messages": replied, "tools": [TOOL]})
    assert trace.messages[2]["content"] == MARK and not prompt_is_cut(trace.messages)


def test_an_image_elsewhere_has_the_digest_of_its_address_and_a_file_of_text_is_text():
    url = "https://example.org/a.png"
    (trace,) = read({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}, SAID[3]]})
    assert trace.messages[0]["content"] == f"[image, not in the log, sha256 {sha256(url.encode()).hexdigest()[:16]}]"
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Ports: 8431"}}
    (trace,) = read({"system": "Short.", "messages": [{"role": "user", "content": [document]}, SAID[3]]})
    assert trace.messages[1]["content"] == "Ports: 8431"


def test_turns_of_the_responses_form_stay_apart_and_parallel_calls_are_one_turn():
    def said(text):
        return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}

    def called(number):
        return {"type": "function_call", "call_id": f"c{number}", "name": "look", "arguments": "{}"}

    def replied(number):
        return {"type": "function_call_output", "call_id": f"c{number}", "output": f"{number}"}

    def turns(*items):
        (item,) = read([{"role": "user", "content": "Go."}, *items])
        return item if isinstance(item, Quarantined) else [(role, text, len(calls)) for role, text, calls in conversation(item)]

    assert turns(said("A"), called(0), said("B"), called(1), replied(0), replied(1)) == [
        ("user", "Go.", 0), ("assistant", "A\n\nB", 2), ("tool", "0", 0), ("tool", "1", 0)
    ]  # fmt: skip
    assert turns(said("A"), called(0), replied(0), said("B"))[1:] == [
        ("assistant", "A", 1), ("tool", "0", 0), ("assistant", "B", 0)
    ]  # fmt: skip
    assert turns(said("A"), called(0), said("B"), called(1)).reason == "call without a reply"


def test_a_tool_whose_input_is_a_text_is_called_with_it():
    call = {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}
    (trace,) = read({"messages": [SAID[0], {"role": "assistant", "content": None, "tool_calls": [call]}, *SAID[2:]]})
    assert conversation(trace)[1] == ("assistant", "", [("sql", {"input": "SELECT 1"})])


def test_the_hint_of_a_reason_does_not_propose_a_reader_to_its_user(tmp_path):
    report = lines(tmp_path, {"hello": "world"})
    (why,) = frequent_reasons(report, tmp_path / "out" / "quarantine.jsonl")
    assert "--reader" in why.advice
    (why,) = frequent_reasons(report, tmp_path / "out" / "quarantine.jsonl", True)
    assert "--reader" not in why.advice and "data explain" in why.advice
