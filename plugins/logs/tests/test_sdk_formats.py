"""What the logs of SDKs and their tracers hold besides one conversation: fields, built-in tools, failures, many traces."""

import copy
import json
from pathlib import Path

import pytest

from plugins.logs.tests.test_openai_responses import calls, said
from tests.tracewheel.traces.readers.logged import read
from tracewheel.core.types import Trace

SAMPLES = {path.stem: json.loads(path.read_text()) for path in Path(__file__).with_name("samples").glob("*.json")}


def sample(name):
    return copy.deepcopy(SAMPLES[name])


FIELDS = {
    "openai_agents": {"id": "trace_1", "session": "conv", "user": "u1", "model": "m", "outcome": None},
    "vercel_ai": {"model": "m", "outcome": None},
    "langchain": {"session": "conv", "user": "u1", "model": "m", "outcome": None},
    "langgraph": {"session": "conv", "user": "u1", "created": "2026-10-01T08:00:00.000000Z", "model": "m", "outcome": None},
    "pydantic_ai": {"session": "conv", "created": "2026-10-01T08:00:00.000000Z", "model": "m", "outcome": None},
    "gemini": {"model": "m", "outcome": None},
    "bedrock": {"model": "m", "outcome": None},
    "langsmith": {
        "id": "r1", "session": "conv", "user": "u1", "created": "2026-10-01T08:00:00.000000Z", "model": "m", "outcome": 1.0,
        "task": "4",
    },
    "google_adk": {
        "id": "conv", "session": "conv", "user": "u1", "created": "2026-10-01T08:00:00.000000Z", "model": "m", "outcome": None
    },
    "autogen": {"created": "2026-10-01T08:00:00.000000Z", "model": None, "outcome": None},
    "weave": {
        "id": "w1", "session": "conv", "user": "u1", "created": "2026-10-01T08:00:00.000000Z", "model": "m", "outcome": 1.0
    },
}  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
def test_fields_of_a_trace(name):
    record = SAMPLES[name]
    (trace,) = read(*record if isinstance(record, list) else [record])
    assert {key: getattr(trace, key) for key in FIELDS[name]} == FIELDS[name]


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


def lists():
    """Bare lists of messages, which need no object around them."""
    return {
        "vercel_ai": SAMPLES["vercel_ai"]["messages"],
        "langchain": SAMPLES["langchain"]["messages"],
        "pydantic_ai": SAMPLES["pydantic_ai"]["messages"],
        "gemini": SAMPLES["gemini"]["contents"],
        "google_adk": SAMPLES["google_adk"]["events"],
        "autogen": SAMPLES["autogen"]["messages"],
        "bedrock": SAMPLES["bedrock"]["messages"],
    }


@pytest.mark.parametrize("name", lists())
def test_bare_lists_of_messages_are_read_on_a_line_and_as_a_document(name):
    record = SAMPLES[name]
    (whole,) = read(*record if isinstance(record, list) else [record])
    (on_a_line,), (listed,) = read(lists()[name]), read(*lists()[name], document=1)
    assert on_a_line.format == listed.format == name
    assert said(on_a_line) == said(listed) == said(whole)
    assert calls(on_a_line) == calls(listed) == calls(whole) == [("weather", {"city": "Rome"})]


def test_a_list_of_records_stays_a_list_of_records():
    record = sample("vercel_ai")
    first, second = read(record, {**record, "id": "y"}, document=1)
    assert said(first) == said(second)


def test_states_of_ui_tool_parts():
    record = sample("vercel_ai")
    tools = [
        {"type": "tool-weather", "toolCallId": "c1", "state": "output-available", "input": {"city": "Rome"},
         "output": {"sky": 1}},
        {"type": "dynamic-tool", "toolName": "book", "toolCallId": "c2", "state": "output-error", "rawInput": {"n": 1},
         "errorText": "no rooms"},
        {"type": "tool-pay", "toolCallId": "c3", "state": "output-denied", "input": {},
         "approval": {"id": "a", "approved": False, "reason": "too dear"}},
        {"type": "tool-weather", "toolCallId": "c4", "state": "input-streaming"},
    ]  # fmt: skip
    record["messages"][1]["parts"][2:3] = tools
    (trace,) = read(record)
    assert calls(trace) == [("weather", {"city": "Rome"}), ("book", {"n": 1}), ("pay", {})]
    assert [message["content"] for message in trace.messages if message["role"] == "tool"] == [
        '{"sky": 1}',
        "no rooms",
        "too dear",
    ]
    assert [message["role"] for message in trace.messages] == ["user", "assistant", "tool", "tool", "tool", "assistant"]
    record["messages"].append({"id": "m3", "role": "user", "parts": [{"type": "file", "mediaType": "image/png", "url": "x"}]})
    assert read(record)[0].reason == "content is not text"


def test_model_messages_and_older_ui_messages_of_the_ai_sdk():
    asked = {"role": "user", "content": "Weather in Rome?"}
    called = {"type": "tool-call", "toolCallId": "c1", "toolName": "weather", "input": {"city": "Rome"}}
    result = {
        "type": "tool-result",
        "toolCallId": "c1",
        "toolName": "weather",
        "output": {"type": "error-text", "value": "down"},
    }
    model = [
        asked,
        {"role": "assistant", "content": [called]},
        {"role": "tool", "content": [result]},
        {"role": "assistant", "content": [{"type": "text", "text": "It is down."}]},
    ]
    call = {"state": "result", "step": 0, "toolCallId": "c1", "toolName": "weather", "args": {"city": "Rome"}, "result": "down"}
    older = [
        asked,
        {"role": "assistant", "content": "", "toolInvocations": [call]},
        {"role": "assistant", "content": "It is down."},
    ]
    parts = [{"type": "step-start"}, {"type": "tool-invocation", "toolInvocation": call}, {"type": "step-start"}]
    middle = [
        asked,
        {"role": "assistant", "content": "It is down.", "parts": [*parts, {"type": "text", "text": "It is down."}]},
    ]
    for messages in (model, older, middle):
        (trace,) = read({"messages": messages})
        assert trace.format == "vercel_ai"
        assert calls(trace) == [("weather", {"city": "Rome"})]
        assert [content or None for _, content in said(trace)] == ["Weather in Rome?", None, "down", "It is down."]


def test_langchain_calls_that_could_not_be_parsed_and_provider_blocks():
    record = sample("langchain")
    data = record["messages"][1]["data"]
    block = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}}
    data["content"] = [{"type": "reasoning", "reasoning": "I look."}, {"type": "text", "text": "Looking."}, block]
    (trace,) = read(record)
    assert trace.messages[1]["content"] == "Looking."
    assert trace.messages[1]["reasoning"] == "I look."
    assert calls(trace) == [("weather", {"city": "Rome"})]
    data["tool_calls"] = []
    (trace,) = read(record)
    assert calls(trace) == [("weather", {"city": "Rome"})]
    record["messages"][0]["data"]["content"] = [{"type": "image_url", "image_url": {"url": "x"}}]
    assert read(record)[0].reason == "content is not text"


def test_states_of_two_threads_are_two_traces_of_their_longest_state():
    states = sample("langgraph")
    others = json.loads(json.dumps(states).replace("conv", "other"))
    first, second = read(*states[1:3], *others, *states[:1], *states[3:])
    assert [first.session, second.session] == ["conv", "other"]
    assert said(first) == said(second)
    assert first.info["snapshots"] == 4
    assert first.info["state"] == {"order": 7}


def test_a_dumped_snapshot_that_became_a_list_and_a_checkpoint_are_read():
    state = sample("langgraph")[0]
    config = {"configurable": {"thread_id": "conv", "checkpoint_ns": "", "checkpoint_id": "c4"}}
    snapshot = [state["values"], [], config, state["metadata"], state["created_at"], None, [], []]
    checkpoint = {"config": config, "checkpoint": {"id": "c4", "ts": state["created_at"], "channel_values": state["values"]},
                  "metadata": state["metadata"]}  # fmt: skip
    for value in (snapshot, checkpoint):
        (trace,) = read(value)
        assert (trace.format, trace.session, len(trace.messages)) == ("langgraph", "conv", 4)


def test_pydantic_retries_and_instructions():
    record = sample("pydantic_ai")
    first, _, returned, _ = record["messages"]
    first["instructions"] = "Be brief."
    returned["parts"] = [{"content": "no such city", "tool_name": "weather", "tool_call_id": "c1", "part_kind": "retry-prompt"}]
    again = {"content": "Answer in text.", "tool_name": None, "tool_call_id": "x", "part_kind": "retry-prompt"}
    record["messages"] += [{**returned, "parts": [again]}, record["messages"][3]]
    (trace,) = read(record)
    assert said(trace)[0] == ("system", "Be brief.")
    assert trace.messages[3]["tool_call_id"] == "c1"
    assert said(trace)[3:] == [
        ("tool", "no such city"), ("assistant", "It is sunny."), ("user", "Answer in text."), ("assistant", "It is sunny.")
    ]  # fmt: skip


def test_gemini_results_without_ids_go_to_the_calls_of_their_name_in_order():
    record = sample("gemini")
    contents = record["contents"]
    contents[1]["parts"].append({"functionCall": {"name": "weather", "args": {"city": "Oslo"}}})
    contents[2]["parts"].append({"functionResponse": {"name": "weather", "response": {"result": "wet"}}})
    record["systemInstruction"] = {"parts": [{"text": "Be brief."}]}
    (trace,) = read(record)
    asked = [call["id"] for call in trace.messages[2]["tool_calls"]]
    assert [message["tool_call_id"] for message in trace.messages[3:5]] == asked
    assert trace.messages[4]["content"] == '{"result": "wet"}'
    contents[0]["parts"].append({"inlineData": {"mimeType": "image/png", "data": "aGk="}})
    assert read(record)[0].reason == "content is not text"


def test_runs_of_two_traces_in_any_order_and_a_run_tree_are_read_alike():
    runs = sample("langsmith")
    others = json.loads(json.dumps(runs).replace('"r1"', '"q1"'))
    first, second = read(*[run for pair in zip(reversed(runs), others, strict=True) for run in pair])
    assert [first.id, second.id] == ["r1", "q1"]
    tree = {**runs[0], "child_runs": [{**run, "parent_run_id": None} for run in runs[1:]]}
    (nested,) = read(tree)
    (answered,) = read({"runs": runs})
    assert said(first) == said(second) == said(nested) == said(answered)
    assert first.tools == nested.tools


def test_a_langsmith_tool_run_supplies_the_result_that_no_model_run_shows_and_its_error():
    runs = sample("langsmith")[:3]
    (trace,) = read(*runs)
    assert said(trace)[-1] == ("tool", "sunny")
    runs[2] |= {"outputs": None, "error": "no such city"}
    (trace,) = read(*runs)
    assert said(trace)[-1] == ("tool", "no such city")
    assert trace.info["errors"] == ["no such city"]


def test_langsmith_without_model_runs_is_read_from_its_root_run():
    root = sample("langsmith")[0]
    chat = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    root["inputs"], root["outputs"] = {"messages": chat[:1]}, {"messages": chat}
    assert said(read(root)[0]) == [("user", "Hello"), ("assistant", "Hi")]
    root["inputs"], root["outputs"] = {"city": "Rome"}, {"sky": "blue"}
    assert read(root)[0].reason == "no messages"


def test_feedback_of_people_and_models_is_no_outcome():
    runs = sample("langsmith")
    runs[0]["feedback_stats"] = None
    runs[0]["feedback"] = [
        {"key": "correctness", "score": 0.0, "feedback_source": {"type": "model"}},
        {"key": "correctness", "score": 1.0, "feedback_source": {"type": "app"}},
    ]
    (trace,) = read(*runs)
    assert (trace.outcome, trace.info["judged"]) == (None, 1.0)
    runs[0]["feedback"].append({"key": "reward", "score": 0.5, "feedback_source": {"type": "api"}})
    assert read(*runs)[0].outcome == 0.5


def test_adk_events_on_the_lines_of_a_file_are_one_session():
    record = sample("google_adk")
    (trace,), (whole,) = read(*record["events"]), read(record)
    assert (trace.format, said(trace)) == ("google_adk", said(whole))
    assert said(trace)[-1] == ("assistant", "It is sunny.")


def test_autogen_thoughts_summaries_and_states():
    record = sample("autogen")
    record["messages"].insert(
        1, {**record["messages"][0], "type": "ThoughtEvent", "source": "desk", "content": "I look it up."}
    )
    (trace,) = read(record)
    assert trace.messages[1]["content"] == "I look it up."
    assert trace.info["unseen_messages"] == {"ToolCallSummaryMessage": 1}
    assert trace.info["agents"] == ["desk"]
    asked, _, called, replied, _, ended = record["messages"]
    context = [
        {"content": "Be brief.", "type": "SystemMessage"},
        {"content": asked["content"], "source": "user", "type": "UserMessage"},
        {"content": called["content"], "thought": "I look it up.", "source": "desk", "type": "AssistantMessage"},
        {"content": replied["content"], "type": "FunctionExecutionResultMessage"},
        {"content": ended["content"], "thought": None, "source": "desk", "type": "AssistantMessage"},
    ]
    agent = {"type": "AssistantAgentState", "version": "1.0.0", "llm_context": {"messages": context}}
    team = {"type": "TeamState", "agent_states": {"desk": {"agent_state": agent}, "RoundRobinGroupChatManager": {}}}
    for state in (agent, team):
        (saved,) = read(state)
        assert said(saved) == [("system", "Be brief."), *said(trace)]
    record["messages"].append({**asked, "type": "MultiModalMessage", "content": ["Look:", {"data": "aGk="}]})
    assert read(record)[0].messages[-1]["content"].startswith("Look:\n[image, 2 bytes, sha256 ")
    record["messages"][-1]["content"] = ["Look:", {"path": "a.png"}]
    assert read(record)[0].reason == "content is not text"


def test_weave_calls_of_other_providers_and_missing_results():
    calls_ = sample("weave")
    (trace,) = read(*calls_[:3])
    assert said(trace)[-1] == ("tool", "sunny")
    block = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Rome"}}
    calls_[1] |= {
        "inputs": {"system": "Be brief.", "messages": [{"role": "user", "content": "Weather in Rome?"}], "model": "m"},
        "output": {"type": "message", "role": "assistant", "content": [block], "model": "m"},
    }
    (trace,) = read(*calls_[:3])
    assert [message["role"] for message in trace.messages] == ["system", "user", "assistant", "tool"]
    assert calls(trace) == [("weather", {"city": "Rome"})]
    assert trace.info["scores"][1] == {"name": "wandb.reaction.1", "value": "+1", "judge": "person"}
