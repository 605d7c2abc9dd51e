"""OpenHands' software-agent SDK: folders of events, exports and evaluations give the conversation that the model had."""

import copy
import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracewheel.core.types import Trace
from tracewheel.traces.discovery import find_files
from tracewheel.traces.quarantine import REASONS, Quarantined
from tracewheel.traces.readers.reading import read_traces

CITY = {"city": "Rome"}


def text(words):
    return {"cache_prompt": False, "type": "text", "text": words}


def message(source, words, **more):
    role = "assistant" if source == "agent" else source
    said = {"role": role, "content": [text(words)], "thinking_blocks": [], **more}
    return {"source": source, "llm_message": said, "activated_skills": [], "extended_content": [], "kind": "MessageEvent"}


def action(call, response, thought="", arguments=CITY, **more):
    logged = {"id": call, "name": "weather", "arguments": json.dumps({**arguments, "summary": "Look"}), "origin": "completion"}
    return {
        "source": "agent", "thought": [text(thought)] if thought else [], "thinking_blocks": [],
        "action": {**arguments, "kind": "WeatherAction"}, "tool_name": "weather", "tool_call_id": call, "tool_call": logged,
        "llm_response_id": response, "security_risk": "UNKNOWN", "summary": "Look", "kind": "ActionEvent", **more,
    }  # fmt: skip


def result(call, words, *, is_error=False, **more):
    observation = {"content": [text(words)], "is_error": is_error, "kind": "WeatherObservation", **more}
    of_call = {"source": "environment", "tool_name": "weather", "tool_call_id": call, "action_id": f"of {call}"}
    return {**of_call, "observation": observation, "kind": "ObservationEvent"}


def conversation(*events):
    """The events as they are stored: with ids, times, and each with the one before it as its parent."""
    start = {"source": "agent", "system_prompt": text("You help."), "tools": [], "kind": "SystemPromptEvent"}
    stored = []
    for position, event in enumerate([start, *events]):
        before = {"parent_id": f"{position - 1:08x}"} if position else {}
        about = {"id": f"{position:08x}", "timestamp": f"2026-10-01T08:00:{position:02d}.000001"}
        stored.append({**about, **before, **copy.deepcopy(event)})
    return stored


METADATA = {"exit_code": 0, "prefix": "(more above) ", "suffix": "\n[exit code 0]"}
EVENTS = conversation(
    message("user", "Weather in Rome?"),
    action("c1", "r1", "I look.", reasoning_content="Two at once."),
    action("c2", "r1"),
    {"source": "environment", "key": "execution_status", "value": "running", "kind": "ConversationStateUpdateEvent"},
    result("c2", "no such city", is_error=True),
    result("c1", "sunny", metadata=METADATA),
    {**action("c3", "r2"), "action": None},
    {"source": "agent", "tool_name": "weather", "tool_call_id": "c3", "error": "no such tool", "kind": "AgentErrorEvent"},
    message("agent", "It is sunny.", reasoning_content="Enough."),
)
STATE = {
    "id": "conv", "agent": {"llm": {"model": "m"}, "kind": "Agent"}, "workspace": {"kind": "LocalWorkspace"},
    "persistence_dir": "/p", "execution_status": "finished", "leaf_event_id": EVENTS[-1]["id"],
}  # fmt: skip
ROLES = ["system", "user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]


def write_folder(folder, events, state):
    (folder / "events").mkdir(parents=True)
    for position, event in enumerate(events):
        (folder / "events" / f"event-{position:05d}-{event['id']}.json").write_text(json.dumps(event))
    (folder / "base_state.json").write_text(json.dumps(state))


def read(path):
    return list(read_traces(find_files([str(path)])))


def read_events(tmp_path, events, name="log.json"):
    (tmp_path / name).write_text(json.dumps(events))
    return read(tmp_path / name)


def test_a_folder_of_events_is_one_conversation_and_two_folders_are_two(tmp_path):
    write_folder(tmp_path / "conversations" / "one", EVENTS, STATE)
    other = conversation(message("user", "Hello?"), message("agent", "Hello!"))
    write_folder(tmp_path / "conversations" / "two", other, {**STATE, "id": "other", "leaf_event_id": other[-1]["id"]})
    one, two = read(tmp_path)
    assert [message["role"] for message in one.messages] == ROLES
    assert (one.id, one.session, one.model, one.created) == ("conv", "conv", "m", "2026-10-01T08:00:00.000001Z")
    assert one.format == "openhands" and one.info["execution_status"] == "finished"
    assert [message["content"] for message in two.messages] == ["You help.", "Hello?", "Hello!"]
    (alone,) = read(tmp_path / "conversations" / "one")
    assert alone.messages == one.messages


def test_calls_of_one_response_are_one_turn_with_thought_reasoning_results_and_errors(tmp_path):
    (trace,) = read_events(tmp_path, EVENTS)
    first, sunny, failed, second, error, answer = trace.messages[2:]
    assert (first["content"], first["reasoning"]) == ("I look.", "Two at once.")
    assert [call["id"] for call in first["tool_calls"]] == ["c1", "c2"]
    assert json.loads(first["tool_calls"][0]["function"]["arguments"]) == {**CITY, "summary": "Look"}
    assert (sunny["tool_call_id"], sunny["content"]) == ("c1", "(more above) sunny\n[exit code 0]")
    assert (failed["tool_call_id"], failed["content"]) == ("c2", "no such city")
    assert second["content"] is None and (error["tool_call_id"], error["content"]) == ("c3", "no such tool")
    assert (answer["content"], answer["reasoning"]) == ("It is sunny.", "Enough.")
    assert trace.info["unseen_events"] == {"ConversationStateUpdateEvent": 1} and trace.info["failed_calls"] == 1


def test_lists_lines_pages_and_evaluations_hold_the_same_conversation(tmp_path):
    (listed,) = read_events(tmp_path, EVENTS)
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    (tmp_path / "indented.json").write_text(json.dumps(EVENTS, indent=2))
    (page,) = read_events(tmp_path, {"items": EVENTS, "next_page_id": None}, "page.json")
    for (trace,) in (read(tmp_path / "lines.jsonl"), read(tmp_path / "indented.json"), [page]):
        assert trace.messages == listed.messages
    run = {
        "instance_id": "4", "attempt": 2, "test_result": {"git_patch": "diff"}, "instruction": "Weather in Rome?",
        "metadata": {"llm": {"model": "m"}, "dataset": "d", "max_iterations": 9}, "history": EVENTS, "metrics": None,
        "error": None,
    }  # fmt: skip
    (trace,) = read_events(tmp_path, run)
    assert (trace.task, trace.model, trace.outcome, trace.info["attempt"]) == ("4", "m", None, 2)
    assert trace.messages == listed.messages and trace.info["test_result"] == {"git_patch": "diff"}
    both = read_events(tmp_path, [EVENTS, conversation(message("user", "Hello?"), message("agent", "Hello!"))])
    assert [len(trace.messages) for trace in both] == [8, 3]


def test_the_branch_that_the_user_left_and_what_has_no_partner_are_counted(tmp_path):
    again = {**message("agent", "It rains."), "id": "0000000a", "parent_id": EVENTS[-2]["id"]}
    (latest,) = read_events(tmp_path, [*EVENTS, again])
    assert latest.messages[-1]["content"] == "It rains." and latest.info["left_out"] == {"other branches": 1}
    write_folder(tmp_path / "c", [*EVENTS, again], STATE)
    (chosen,) = read(tmp_path / "c")
    assert chosen.messages[-1]["content"] == "It is sunny."
    (trace,) = read_events(
        tmp_path,
        conversation(
            message("user", "Weather in Rome?"), action("c1", "r1", "I look."), action("c2", "r1"), result("c1", "sunny"),
            result("c1", "crashed"), result("c9", "late"), message("agent", "It is sunny."), action("c4", "r4"),
        ),
    )  # fmt: skip
    calls = [[call["id"] for call in message.get("tool_calls") or []] for message in trace.messages[2:]]
    assert calls == [["c1"], [], [], ["c4"]]
    left_out = {"calls without a result": 1, "results without a call": 1, "second results": 1}
    assert trace.info["left_out"] == left_out


def test_a_rejected_call_a_condensation_and_a_critic_are_kept(tmp_path):
    refused = {"source": "environment", "tool_name": "weather", "tool_call_id": "c1", "rejection_reason": "Not now."}
    summary = {"source": "environment", "forgotten_event_ids": ["00000001"], "summary": "Weather.", "llm_response_id": "r3"}
    (trace,) = read_events(
        tmp_path,
        conversation(
            message("user", "Weather in Rome?"), action("c1", "r1"), {**refused, "kind": "UserRejectObservation"},
            {**summary, "kind": "Condensation"}, {**message("agent", "Ask later."), "critic_result": {"score": 0.25}},
        ),
    )  # fmt: skip
    assert trace.messages[3]["content"] == "Not now." and trace.info["condensations"] == ["Weather."]
    assert (trace.outcome, trace.info["judged"]) == (None, 0.25)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda events: events[1].update(kind="NewEvent"), "message unreadable"),
        (lambda events: events.append({**events[0], "id": "f"}), "message unreadable"),
        (lambda events: events[1]["llm_message"]["content"].append({"type": "image"}), "content is not text"),
        (lambda events: events[6]["observation"].update(screenshot_data="iVBORw0"), "content is not text"),
    ],
)
def test_what_cannot_be_read_is_quarantined(tmp_path, change, reason):
    events = copy.deepcopy(EVENTS)
    change(events)
    (item,) = read_events(tmp_path, {"instance_id": "4", "test_result": {}, "history": events})
    assert isinstance(item, Quarantined) and item.reason == reason


VALUES = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.text(max_size=2), max_size=2) | st.just({"a": [1]})


@settings(max_examples=60)
@given(data=st.data())
def test_changed_events_are_a_trace_or_quarantined(tmp_path_factory, data):
    values = copy.deepcopy([STATE, *EVENTS])
    for _ in range(data.draw(st.integers(1, 3))):
        node = data.draw(st.sampled_from(values))
        inner = [part for part in node.values() if isinstance(part, dict) and part]
        node = data.draw(st.sampled_from([node, *inner]))
        node[data.draw(st.sampled_from(sorted(node)))] = data.draw(VALUES)
    folder = tmp_path_factory.mktemp("changed")
    (folder / "lines.jsonl").write_text("".join(json.dumps(value) + "\n" for value in values))
    items = itertools.chain(read(folder), read_events(folder, {"instance_id": "4", "history": values[1:]}))
    for item in items:
        assert isinstance(item, Trace) or item.reason in REASONS
