"""Session files of coding agents: what links their lines, and the conversations that they hold."""

import copy
import json
from pathlib import Path

import pytest

from tracewheel.core.types import Trace
from tracewheel.traces.readers.reading import read_traces

FOLDER = Path(__file__).with_name("samples")
CLAUDE, CODEX, GEMINI = (json.loads((FOLDER / f"{name}.json").read_text()) for name in ("claude_code", "codex", "gemini_cli"))


def read(tmp_path, lines, name="session.jsonl"):
    file = tmp_path / name
    file.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
    return list(read_traces({name: file}))


def said(trace):
    assert isinstance(trace, Trace), trace
    return [
        (message["role"], message["content"] or "", [call["id"] for call in message.get("tool_calls", ())])
        for message in trace.messages
    ]


def line(kind, uuid, parent, content, **more):
    """A line of Claude Code; a response's message id is `more["id"]`."""
    message = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": more.pop("id", uuid), "model": "m", "usage": {"input_tokens": 10, "output_tokens": 5}}
    return {"parentUuid": parent, "isSidechain": False, "sessionId": "conv", "version": "2.1.39", "type": kind, "uuid": uuid,
            "timestamp": "2026-10-01T08:00:00.000Z", "message": message, **more}  # fmt: skip


def call(identity):
    return [{"type": "tool_use", "id": identity, "name": "weather", "input": {"city": identity}}]


def result(identity, text):
    return [{"type": "tool_result", "tool_use_id": identity, "content": text}]


def text(words):
    return [{"type": "text", "text": words}]


def test_facts_of_a_session(tmp_path):
    (trace,) = read(tmp_path, CLAUDE)
    assert (trace.id, trace.session, trace.model) == ("conv", "conv", "m")
    assert trace.created.startswith("2026-10-01T08:00:00")
    assert (trace.outcome, trace.user, trace.task) == (None, None, None)
    assert trace.messages[1]["reasoning"] == "I look."
    assert trace.info["usage"] == {"input_tokens": 20, "output_tokens": 10}  # once a response, not once a line
    assert trace.info["title"] == "Weather in Rome"
    (trace,) = read(tmp_path, CODEX)
    assert (trace.id, trace.session, trace.model, trace.outcome) == ("conv", "conv", "m", None)
    assert trace.messages[1]["reasoning"] == "I look."
    assert trace.info["usage"]["total_tokens"] == 15
    (trace,) = read(tmp_path, [GEMINI])
    assert (trace.id, trace.session, trace.model, trace.outcome) == ("conv", "conv", "m", None)
    assert trace.messages[1]["reasoning"] == "Weather: I look."
    assert trace.info["usage"]["total"] == 43


def test_results_that_arrive_while_a_response_still_streams_are_no_branches(tmp_path):
    """Each result hangs on the line of its call, so that the tree of lines forks where the conversation does not."""
    lines = [
        line("user", "u1", None, "Both cities?"),
        line("assistant", "a1", "u1", text("I look."), id="msg_1"),
        line("assistant", "a2", "a1", call("c1"), id="msg_1"),
        line("user", "r1", "a2", result("c1", "sunny")),
        line("assistant", "a3", "a2", call("c2"), id="msg_1"),
        line("user", "r2", "a3", result("c2", "rain")),
        line("assistant", "a4", "r1", text("Sun and rain.")),
    ]
    (trace,) = read(tmp_path, lines)
    assert said(trace) == [
        ("user", "Both cities?", []),
        ("assistant", "I look.", ["c1", "c2"]),
        ("tool", "sunny", []),
        ("tool", "rain", []),
        ("assistant", "Sun and rain.", []),
    ]


def test_branches_sub_agents_and_what_follows_a_compaction_are_traces_of_one_session(tmp_path):
    side = {"isSidechain": True, "agentId": "a7"}
    lines = [
        line("user", "u1", None, "First"),
        line("assistant", "a1", "u1", text("One")),
        line("user", "u2", "a1", "Second"),
        line("user", "s1", None, "Search", **side),
        line("assistant", "s2", "s1", text("Found"), **side),
        line("assistant", "a2", "u2", text("Two")),
        line("user", "u3", "a1", "Second, in other words"),
        line("assistant", "a3", "u3", text("Too")),
        {"type": "system", "subtype": "compact_boundary", "uuid": "b1", "parentUuid": None, "logicalParentUuid": "a3",
         "sessionId": "conv", "isSidechain": False, "content": "Conversation compacted"},
        line("user", "u4", "b1", "What was said: …", isCompactSummary=True),
        line("assistant", "a4", "u4", text("On we go")),
        line("user", "u5", "a4", "Never answered"),
    ]  # fmt: skip
    traces = {trace.id: [words for _, words, _ in said(trace)] for trace in read(tmp_path, lines)}
    assert traces == {
        "conv/agent-a7": ["Search", "Found"],
        "conv": ["First", "One", "Second", "Two"],
        "conv/u3": ["First", "One", "Second, in other words", "Too"],
        "conv/u4": ["What was said: …", "On we go"],
    }
    grown = [*lines, line("assistant", "a5", "u5", text("Now it is"))]
    longer = {trace.id: [words for _, words, _ in said(trace)] for trace in read(tmp_path, grown)}
    assert longer == {**traces, "conv/u4": [*traces["conv/u4"], "Never answered", "Now it is"]}  # ids stay as they were
    assert {trace.session for trace in read(tmp_path, lines)} == {"conv"}


def test_what_the_model_did_not_see_is_left_out_and_counted(tmp_path):
    error = line("assistant", "e1", "u1", text("API Error: overloaded"), isApiErrorMessage=True)
    error["message"]["model"] = "<synthetic>"
    lines = [
        line("user", "u1", None, "Weather in Rome?"),
        error,
        line("assistant", "a1", "e1", call("lost")),  # the process was killed before the result
        line("user", "u2", "a1", "Again, please."),
        line("assistant", "a2", "u2", text("It is sunny.")),
        line("assistant", "a2", "u2", text("It is sunny.")),
    ]
    (trace,) = read(tmp_path, lines)
    assert said(trace) == [("user", "Weather in Rome?", []), ("user", "Again, please.", []), ("assistant", "It is sunny.", [])]
    assert trace.info["left_out"] == {"calls without a result": 1, "errors of the API": 1, "repeated lines": 1}


def test_a_damaged_line_costs_no_other(tmp_path):
    lines = copy.deepcopy(CLAUDE)
    lines.insert(4, '{"parentUuid": "a2", "type": "us\n')
    damaged, trace = read(tmp_path, lines)
    assert (damaged.reason, damaged.line) == ("not JSON", 5)
    assert said(trace) == said(read(tmp_path, CLAUDE)[0])
    del lines[4]
    lines[1] = '{"broken\n'  # its response's other line links to it
    damaged, trace = read(tmp_path, lines)
    assert damaged.line == 2 and said(trace) == said(read(tmp_path, CLAUDE)[0])


def test_lines_that_a_resumed_session_repeats_count_once(tmp_path):
    (trace,) = read(tmp_path, CLAUDE * 3)
    assert said(trace) == said(read(tmp_path, CLAUDE)[0])


def test_a_session_without_a_response_is_quarantined(tmp_path):
    (found,) = read(tmp_path, CLAUDE[:1])
    assert (found.reason, found.detail) == ("no messages", "the claude_code log holds no conversation")
    assert json.loads(found.raw) == CLAUDE[0]


def item(kind, **payload):
    return {"timestamp": "2026-10-01T08:00:05.000Z", "type": kind, "payload": payload}


def message(role, words):
    return item("response_item", type="message", role=role, content=[{"type": "output_text", "text": words}])


def test_codex_calls_of_each_kind_and_an_interrupted_one(tmp_path):
    lines = [
        *CODEX,
        message("user", "Now change it."),
        item("response_item", type="local_shell_call", call_id="c2", status="completed",
             action={"type": "exec", "command": ["ls"], "timeout_ms": None}),
        item("response_item", type="custom_tool_call", call_id="c3", name="apply_patch", input="*** Begin Patch"),
        item("response_item", type="function_call", call_id="c4", name="shell", arguments='{"command": ["sleep"]}'),
        item("response_item", type="custom_tool_call_output", call_id="c3", output=[{"type": "input_text", "text": "Done"}]),
        item("response_item", type="function_call_output", call_id="c2", output={"content": "a.txt", "success": True}),
        message("user", "Stop."),
        message("assistant", "Stopped."),
    ]  # fmt: skip
    (trace,) = read(tmp_path, lines)
    turn, *replies = trace.messages[5:9]
    called = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in turn["tool_calls"]]
    assert called == [
        ("local_shell", {"command": ["ls"]}),
        ("apply_patch", {"input": "*** Begin Patch"}),
        ("shell", {"command": ["sleep"]}),
    ]
    assert [(reply["tool_call_id"], reply["content"]) for reply in replies] == [
        ("c2", "a.txt"),
        ("c3", "Done"),
        ("c4", "aborted"),
    ]
    unknown = [*CODEX, item("response_item", type="new_thing", text="Said")]
    assert [found.reason for found in read(tmp_path, unknown)] == ["message unreadable"]


def test_codex_compaction_rollback_and_older_rollouts(tmp_path):
    compacted = item("compacted", message="", replacement_history=[message("user", "What was said")["payload"]])
    lines = [*CODEX, compacted, message("user", "Go on"), message("assistant", "Gone on")]
    traces = {trace.id: [words for _, words, _ in said(trace)] for trace in read(tmp_path, lines)}
    assert traces == {
        "conv": ["Weather in Rome?", "", "sunny", "It is sunny."],
        "conv/1": ["What was said", "Go on", "Gone on"],
    }
    undone = [
        message("user", "And Oslo?"),
        message("assistant", "Rain."),
        item("event_msg", type="thread_rolled_back", num_turns=1),
    ]
    lines = [*CODEX, *undone, message("user", "And Bonn?"), message("assistant", "Fog.")]
    traces = {trace.id: [words for _, words, _ in said(trace)][4:] for trace in read(tmp_path, lines)}
    assert traces == {"conv": ["And Oslo?", "Rain."], "conv/1": ["And Bonn?", "Fog."]}
    first = {"id": "old", "timestamp": "2025-07-01T08:00:00.000Z", "instructions": None}
    bare = [line["payload"] for line in CODEX if line["type"] == "response_item"]
    (trace,) = read(tmp_path, [first, {"record_type": "state"}, *bare])
    assert trace.id == "old" and said(trace) == said(read(tmp_path, CODEX)[0])


def test_gemini_lines_with_updates_and_a_rewind(tmp_path):
    first, messages = {**GEMINI, "messages": None}, GEMINI["messages"]
    del first["messages"]
    early = {key: part for key, part in messages[2].items() if key != "toolCalls"}
    lines = [first, *messages[:2], {"$set": {"lastUpdated": "2026-10-01T08:00:01.000Z"}}, early, messages[2], messages[3]]
    (trace,) = read(tmp_path, lines)
    assert trace.messages == read(tmp_path, [GEMINI])[0].messages
    again = {**messages[3], "id": "g4", "content": "Sunny, as ever."}
    before, after = read(tmp_path, [*lines, {"$rewindTo": "g3"}, again])
    assert before.messages == trace.messages and [before.id, after.id] == ["conv", "conv/1"]
    assert said(after) == [*said(trace)[:-1], ("assistant", "Sunny, as ever.", [])]


@pytest.mark.parametrize("lines", [CLAUDE, CODEX], ids=["claude_code", "codex"])
def test_only_lines_of_a_session_that_has_begun_belong_to_it(tmp_path, lines):
    other = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
    traces = read(tmp_path, [other, *lines, other])
    assert [trace.format for trace in traces][:2] == ["openai", "openai"] and len(traces) == 3
