"""What the readers of agents' sessions and of rows do beyond one conversation: branches, compactions, calls without results."""

import json
from pathlib import Path

import pytest

from tests.tracewheel.traces.readers.logged import STORY, conversation
from tests.tracewheel.traces.readers.logged import read as read_values
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.reading import read_traces

SAMPLES = Path(__file__).with_name("samples")
NO_RESULT = "[The log does not hold the result of this call.]"


def sample(name):
    return json.loads((SAMPLES / f"{name}.json").read_text())


def read(tmp_path, lines):
    file = tmp_path / "log.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return list(read_traces({"log": file}))


def roles(trace):
    return [(message["role"], message["content"]) for message in trace.messages]


def test_a_call_that_was_interrupted_is_left_out_and_counted(tmp_path):
    lines = sample("copilot_cli")
    del lines[5]
    asked = {"type": "user.message", "data": {"content": "And now?"}, "id": "e5b", "timestamp": "2026-10-01T08:00:05.000Z"}
    lines.insert(5, asked)
    (trace,) = read(tmp_path, lines)
    assert roles(trace) == [("user", STORY[0][1]), ("user", "And now?"), ("assistant", STORY[3][1])]
    assert trace.info["left_out"] == {"calls without a result": 1}


def test_only_the_branch_of_the_last_line_is_read_and_a_compaction_begins_a_trace(tmp_path):
    lines = sample("pi")
    undone = {**lines[-1], "id": "undone", "message": {"role": "assistant", "content": [{"type": "text", "text": "Rain."}]}}
    (trace,) = read(tmp_path, [*lines[:-1], undone, lines[-1]])
    assert conversation(trace) == STORY
    assert trace.info["left_out"] == {"lines of other branches": 1}
    after = [
        {"type": "compaction", "id": "k", "parentId": "m4", "summary": "It is sunny in Rome."},
        {"type": "message", "id": "m6", "parentId": "k", "message": {"role": "user", "content": "And Oslo?"}},
        {"type": "message", "id": "m7", "parentId": "m6", "message": {"role": "assistant", "content": "I do not know."}},
    ]
    first, second = read(tmp_path, [*lines, *after])
    assert (first.id, second.id, second.session) == ("conv", "conv/1", "conv")
    assert roles(second)[:2] == [("user", "It is sunny in Rome."), ("user", "And Oslo?")]


def test_a_new_kind_of_line_is_left_out_if_it_says_nothing_and_refused_if_it_does(tmp_path):
    lines = sample("kimi")
    (trace,) = read(tmp_path, [*lines, {"type": "token_counting.measured", "tokens": 12}])
    assert trace.info["left_out"] == {"lines of unknown kinds": 1}
    words = "The agent said at length that it would rather not look at the weather in Rome today."
    (item,) = read(tmp_path, [*lines, {"type": "aside", "said": words}])
    assert item.reason == "message unreadable" and "(type: 'aside')" in item.detail


def test_messages_of_several_conversations_in_one_file_are_not_one(tmp_path):
    lines = [{**line, "session_id": "a"} for line in sample("chat_lines")]
    assert conversation(read(tmp_path, lines)[0]) == STORY
    (item,) = read(tmp_path, [*lines, {"role": "user", "content": "Hi.", "session_id": "b"}])
    assert item.reason == "unknown format" and "group: session_id" in item.detail


def test_the_lines_of_a_stream_of_claude_and_of_its_sub_agent(tmp_path):
    def line(kind, content, parent=None, **message):
        said = {"role": kind, "content": content, **message}
        return {"type": kind, "message": said, "session_id": "s", "parent_tool_use_id": parent}

    call = {"type": "tool_use", "id": "t1", "name": "Task", "input": {"prompt": "Look."}}
    lines = [
        {"type": "system", "subtype": "init", "session_id": "s", "tools": ["Task"], "model": "m", "cwd": "/w"},
        line("user", "Go."),
        line("assistant", [call], id="m1", model="m"),
        line("user", "Look.", "t1"),
        line("assistant", [{"type": "text", "text": "One file."}], "t1", id="m2", model="m"),
        line("user", [{"type": "tool_result", "tool_use_id": "t1", "content": "One file."}]),
        line("assistant", [{"type": "text", "text": "Done."}], id="m3", model="m"),
        {"type": "result", "subtype": "success", "result": "Done.", "session_id": "s"},
    ]
    side, main = sorted(read(tmp_path, lines), key=lambda trace: len(trace.messages))
    assert roles(side) == [("user", "Look."), ("assistant", "One file.")]
    assert [message["role"] for message in main.messages] == ["user", "assistant", "tool", "assistant"]


def test_a_line_that_calls_something_outside_a_message_is_no_silent_loss(tmp_path):
    line = {
        "type": "tool_use",
        "sessionId": "conv",
        "name": "bash",
        "input": {"command": "ls"},
        "uuid": "x",
        "parentUuid": None,
    }
    (item,) = read(tmp_path, [*sample("claude_code"), line])
    assert item.reason == "message unreadable" and "'tool_use'" in item.detail


def test_a_users_message_that_is_in_an_event_only_is_no_silent_loss(tmp_path):
    def item(kind, **payload):
        return {"timestamp": "2026-10-01T08:00:00.000Z", "type": kind, "payload": payload}

    said = item("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": "Hello."}])
    lines = [item("session_meta", id="c"), item("event_msg", type="user_message", message="Hi there."), said]
    (found,) = read(tmp_path, lines)
    assert found.reason == "content was not read" and "'Hi there.'" in found.detail


def test_a_set_of_evaluations_is_a_trace_a_case_with_placeholders_for_results():
    def text(role, words):
        return {"role": role, "parts": [{"text": words, "function_call": None}]}

    turn = {
        "user_content": text("user", "Weather in Rome?"),
        "intermediate_data": {"tool_uses": [{"id": None, "name": "weather", "args": {"city": "Rome"}}]},
        "final_response": text("model", "It is sunny."),
    }
    cases = [{"eval_id": "one", "conversation": [turn]}, {"eval_id": "two", "conversation": [turn, turn]}]
    one, two = read_values({"eval_set_id": "set", "eval_cases": cases})
    assert conversation(one) == [*STORY[:2], ("tool", NO_RESULT, []), STORY[3]]
    assert (one.task, two.task, len(two.messages)) == ("one", "two", 8)


ASKED, SAID = {"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": [ASKED], "completion": [SAID]},
        {"prompt": "Hi.", "completion": "Hello."},
        {"prompt": [ASKED], "chosen": [SAID], "rejected": [{**SAID, "content": "No."}]},
        {"chosen": [ASKED, SAID], "rejected": [ASKED, {**SAID, "content": "No."}]},
        {"prompt": "Hi.", "chosen": [ASKED, SAID], "rejected": [ASKED, {**SAID, "content": "No."}]},
        {"conversations": [ASKED, SAID]},
    ],
)
def test_rows_of_prompt_and_answer_and_of_preferences_keep_what_was_chosen(row):
    (trace,) = read_values(row)
    assert (trace.format, roles(trace)) == ("table", [("user", "Hi."), ("assistant", "Hello.")])
    assert ("rejected" in row) == ("rejected" in trace.info)


def test_a_trace_of_a_bulk_export_without_its_observations_is_refused():
    row = {"id": "t", "timestamp": "2026-10-01T08:00:00Z", "project_id": "p", "input": "Hi.", "output": "Hello.", "name": "x"}
    (item,) = read_values(row)
    assert isinstance(item, Quarantined) and "observations" in item.detail


def test_a_call_that_waits_for_approval_is_one_call():
    call = {"type": "function_call", "call_id": "c1", "name": "send", "arguments": "{}"}
    items = [{"type": "tool_call_item", "raw_item": call}, {"type": "tool_approval_item", "raw_item": call}]
    (trace,) = read_values({"$schemaVersion": "1.0", "original_input": "Send it.", "generated_items": items})
    assert [len(message.get("tool_calls", ())) for message in trace.messages] == [0, 1]


def observation(number, kind, **given):
    about = {"id": f"o{number}", "traceId": "t", "type": kind, "name": "weather", "startTime": f"2026-10-01T08:00:0{number}Z"}
    return {**about, "input": None, "output": None, "metadata": "{}", **given}


def test_half_observations_take_what_their_trace_has_and_lose_no_calls():
    answer = {"role": "assistant", "content": STORY[3][1]}
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    about = {"id": "t", "input": {"messages": [{"role": "user", "content": STORY[0][1]}]}, "output": answer, "scores": []}

    def of(*observations):
        (item,) = read_values({"trace": about, "observations": list(observations)})
        return item

    tool = observation(2, "TOOL", output="sunny")
    whole = of(observation(1, "GENERATION", output=called), tool, observation(3, "GENERATION", output=answer))
    assert conversation(whole) == STORY
    assert conversation(of(observation(1, "GENERATION", output=answer))) == [STORY[0], STORY[3]]
    lost = of(observation(1, "GENERATION", output=answer), tool)
    assert lost.reason == "content was not read" and "1 tools ran, 0 calls" in lost.detail
