"""One conversation in every format of this wheel: all give the same messages, and each the fields that only it has."""

import copy
import json
import re
from pathlib import Path

import pytest

from tests.tracewheel.traces.readers.logged import RECORDS as CORE
from tests.tracewheel.traces.readers.logged import STORY, conversation, read, samples_in
from tracewheel.core.kind_table import LOGS, WHEELS
from tracewheel.core.types import Trace
from tracewheel.traces.quarantine import REASONS, Quarantined
from tracewheel.traces.readers.log_reader import built_in_readers

RECORDS, SPANS = samples_in(Path(__file__).parent)
NO_RESULT = "[The log does not hold the result of this call.]"
# What some formats lack or add: replies, the user's message, a tool's arguments.
STORIES = {
    "xlam": STORY[:2],
    "codex_exec": STORY[1:],
    "opencode_run": STORY[1:],
    "cursor": [*STORY[:2], ("tool", NO_RESULT, []), STORY[3]],
    "grok": [("system", "You help.", []), *STORY],
    **{name: [STORY[0], STORY[3]] for name in ("ai_studio", "grok_export", "promptfoo")},  # chats without tools
    "chatgpt": [STORY[0], ("assistant", "", [("weather", {"input": "Rome"})]), *STORY[2:]],
}
ALL = {**{name: [record] for name, record in RECORDS.items()}, **SPANS}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("asked", ["auto", "by name"])
def test_every_format_gives_the_same_conversation(name, asked):
    (trace,) = read(*ALL[name], format="auto" if asked == "auto" else name)
    assert isinstance(trace, Trace), trace
    assert trace.format == name
    assert conversation(trace) == STORIES.get(name, STORY)
    called = {call["id"] for message in trace.messages for call in message.get("tool_calls", ())}
    assert {message["tool_call_id"] for message in trace.messages if message["role"] == "tool"} <= called
    assert trace.source_line == 1
    assert Trace.from_record(trace.to_record()) == trace


def test_every_format_of_the_wheel_has_a_sample_and_a_line_in_the_docs():
    known = {name for name, wheel in WHEELS["log format"].items() if wheel == LOGS}
    assert {*ALL, "elsewhere"} == known  # which are files that hold no conversation
    table = (Path(__file__).parents[1] / "docs/formats.md").read_text()
    listed = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table, re.MULTILINE)
    assert set(re.findall(r"\w+", " ".join(listed))) == {*ALL, "elsewhere"}


@pytest.mark.parametrize("name", RECORDS)
def test_each_record_has_the_most_specific_signs_for_its_own_reader_only(name):
    readers = [reader for reader in built_in_readers() if reader.gathers == "record" and reader.recognises(RECORDS[name])]
    most = max(reader.signs for reader in readers)
    assert {reader.name for reader in readers if reader.signs == most} == {name}


KNOWN = {
    "requests": {
        "id": "msg_2", "session": "0f9d3c1e-5a51-4d0f-9e3b-6b1d6a3f2c11", "user": "user_u1_account_", "model": "m-1",
        "created": "2026-10-01T08:00:00.000Z", "outcome": None
    },
    "anthropic": {"id": "x", "session": "conv", "user": "u1", "model": "m", "outcome": 1.0},
    "otel": {
        "id": "t1", "session": "conv", "user": "u1", "model": "m-1", "created": "2026-09-21T14:13:20.000000Z", "outcome": None
    },
    "tau_bench": {"user": "u1", "outcome": 1.0, "task": "4"},
    "langfuse": {
        "id": "x", "session": "conv", "user": "u1", "created": "2026-10-01T08:00:00Z", "model": "m", "outcome": 1.0
    },
    "mlflow": {
        "id": "x", "session": "conv", "user": "u1", "created": "2026-10-01T08:00:00.000000Z", "model": "m", "outcome": 1.0,
        "task": "4",
    },
    "sweagent": {"outcome": None, "task": "4"},
    "mini_swe_agent": {"model": "m", "outcome": None, "task": "4"},
    "openhands": {"model": "m", "created": "2026-10-01T08:00:00Z", "outcome": None, "task": "4"},
    "atif": {"id": "x", "session": "conv", "model": "m", "created": "2026-10-01T08:00:00.000000Z", "outcome": None},
    "sharegpt": {"id": "x", "outcome": None},
    "openinference": {"id": "t1", "session": "conv", "user": "u1", "model": "m", "outcome": None},
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN)
def test_fields_other_than_the_conversation_are_kept(name):
    (trace,) = read(*ALL[name])
    assert {key: getattr(trace, key) for key in KNOWN[name]} == KNOWN[name]


GIVEN_TOOLS = {
    "anthropic",
    "otel",
    "langfuse",
    "mlflow",
    "atif",
    "sharegpt",
    "openinference",
    "gemini",
    "bedrock",
    "inspect",
    "langsmith",
    "weave",
}
GIVEN_TOOLS |= {"openai_responses", "requests", "toolbench", "xlam", "hermes", "kimi", "braintrust", "bfcl"}


@pytest.mark.parametrize("name", ALL)
def test_tools_are_logged_ones_or_inferred_and_marked(name):
    (trace,) = read(*ALL[name])
    if len(STORIES.get(name, STORY)) == 2 and name != "xlam":
        return
    assert [tool["function"]["name"] for tool in trace.tools] == ["weather"]
    parameters = trace.tools[0]["function"]["parameters"]
    if name == "chatgpt":  # its tools take a text
        return
    assert parameters == {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    assert trace.tools_inferred == (name not in GIVEN_TOOLS)


def test_tokens_and_log_probabilities_are_kept():
    (trace,) = read(RECORDS["atif"])
    assert trace.tokens == {
        "token_ids": [1, 2, 3, 4, 5, 6],
        "logprobs": [0.0, 0.0, -0.1, -0.2, 0.0, -0.3],
        "action_mask": [0, 0, 1, 1, 0, 1],
    }


def test_tokens_are_dropped_when_prompts_do_not_continue():
    record = copy.deepcopy(RECORDS["atif"])
    record["steps"][2]["metrics"]["prompt_token_ids"] = [9, 2, 3, 4, 5]
    (trace,) = read(record)
    assert trace.tokens is None


@pytest.mark.parametrize("name", ["anthropic", "atif", "requests"])
def test_reasoning_is_kept_apart_from_content(name):
    (trace,) = read(*ALL[name])
    assert trace.messages[1]["reasoning"] == "I look."


def test_a_table_of_spans_is_read_like_the_spans():
    """As Phoenix exports them: a column for each path, lists as values with paths in them, and what a row lacks as null."""

    def row(number, inputs, output):
        return {
            "name": "ChatCompletion",
            "context.trace_id": "t1",
            "context.span_id": f"s{number}",
            "parent_id": None,
            "start_time": f"2026-10-01T08:00:0{number}+00:00",
            "attributes.openinference.span.kind": "LLM",
            "attributes.llm.model_name": "m",
            "attributes.llm.input_messages": inputs,
            "attributes.llm.output_messages": [output],
            "attributes.metadata": None,
        }

    function = {"tool_call.function.name": "weather", "tool_call.function.arguments": '{"city": "Rome"}', "tool_call.id": "c1"}
    asked = {"message.role": "user", "message.content": "Weather in Rome?"}
    called = {"message.role": "assistant", "message.tool_calls": [function]}
    replied = {"message.role": "tool", "message.tool_call_id": "c1", "message.content": "sunny"}
    ended = {"message.role": "assistant", "message.content": "It is sunny."}
    (trace,) = read(row(1, [asked], called), row(2, [asked, called, replied], ended))
    assert (trace.format, conversation(trace)) == ("openinference", STORY)
    assert trace.created == "2026-10-01T08:00:01.000000Z"


def test_two_responses_and_results_of_a_responses_log_are_turns():
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Weather in Rome?"}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "Rome"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    ]
    said = {
        "object": "response",
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is sunny."}]}],
    }
    observation = {"type": "GENERATION", "startTime": "2026-10-01T08:00:00Z", "input": items, "output": said}
    (trace,) = read({"trace": {"id": "x"}, "observations": [observation]})
    assert conversation(trace) == STORY


def test_openhands_actions_of_one_response_are_one_turn_and_errors_are_user_messages():
    record = copy.deepcopy(RECORDS["openhands"])
    call = {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    record["history"][3]["tool_call_metadata"]["model_response"]["choices"][0]["message"]["tool_calls"].append(call)
    second = copy.deepcopy(record["history"][3])
    second |= {"id": 6}
    second["tool_call_metadata"]["tool_call_id"] = "c2"
    answer = {**record["history"][4], "id": 7, "cause": 6, "content": "rain"}
    answer["tool_call_metadata"] = {"function_name": "weather", "tool_call_id": "c2"}
    error = {"id": 8, "source": "agent", "observation": "error", "content": "no such tool"}
    record["history"][5:5] = [second, answer, error]
    (trace,) = read(record)
    assert [message["role"] for message in trace.messages] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert trace.info["unseen_events"] == {"recall": 2}


def test_atif_results_without_a_call_id_are_assigned_in_order():
    record = copy.deepcopy(RECORDS["atif"])
    step = record["steps"][1]
    step["tool_calls"].append({"tool_call_id": "c2", "function_name": "weather", "arguments": {"city": "Oslo"}})
    step["observation"]["results"] = [{"content": "both"}]
    (trace,) = read(record)
    assert [(message["tool_call_id"], message["content"]) for message in trace.messages if message["role"] == "tool"] == [
        ("c1", ""),
        ("c2", "both"),
    ]


def test_tracewheels_own_mlflow_traces_are_read_again():
    """They log only the new messages of each turn, not the whole conversation."""
    chat = CORE["openai"]["messages"]
    kinds = [
        ("episode", "AGENT", chat[:1], {"stop_reason": "finished"}),
        ("turn", "LLM", None, chat[1]),
        ("weather", "TOOL", '{"city": "Rome"}', "sunny"),
    ]
    kinds.append(("turn", "LLM", None, chat[3]))
    spans = []
    for number, (name, kind, asked, said) in enumerate(kinds):
        values = {"spanType": kind, "spanInputs": asked, "spanOutputs": said}
        attributes = {f"mlflow.{key}": json.dumps(value) for key, value in values.items() if value is not None}
        parent = "s0" if number else None
        spans.append(
            {
                "trace_id": "t",
                "span_id": f"s{number}",
                "parent_span_id": parent,
                "name": name,
                "start_time_unix_nano": 1_790_000_000_000_000_000 + number,
                "attributes": attributes,
            }
        )
    (trace,) = read({"info": {"trace_id": "x"}, "data": {"spans": spans}})
    assert conversation(trace) == STORY


def damaged(name, change):
    record = copy.deepcopy(RECORDS[name])
    change(record)
    return record


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (damaged("tau_bench", lambda r: r.update(reward="good")), "reward is not a number"),
        (damaged("tau_bench", lambda r: r.update(traj=[])), "no messages"),
        (damaged("langfuse", lambda r: r.update(observations=[])), "no messages"),
        (damaged("sweagent", lambda r: r["history"].pop(3)), "call without a reply"),
        (damaged("atif", lambda r: r["steps"][0].update(source="wizard")), "unknown role"),
        (damaged("atif", lambda r: r["steps"].insert(1, 3)), "message unreadable"),
        (damaged("sharegpt", lambda r: r["conversations"][1].update(value="{city")), "tool calls unreadable"),
        (damaged("sharegpt", lambda r: r["conversations"][0].update({"from": "wizard"})), "unknown role"),
        (damaged("openhands", lambda r: r["history"].insert(1, {"id": 9})), "message unreadable"),
        (damaged("mlflow", lambda r: r["data"].update(spans=[])), "no messages"),
    ],
)
def test_damaged_records_are_quarantined_with_the_reason(record, reason):
    (item,) = read(record)
    assert isinstance(item, Quarantined)
    assert item.reason == reason
    assert reason in REASONS
