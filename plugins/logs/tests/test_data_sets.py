"""Data sets: calls in text (Hermes, ToolBench), xLAM's rows, and tables with JSON text in columns. The shapes are real."""

import json

import pandas
import pytest

from tests.tracewheel.traces.readers.test_fields import USUAL_NAMES
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.reading import read_traces

TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": {"type": "object"}}}
HERMES = {
    "id": "h1",
    "conversations": [
        {"from": "system", "value": f"Use\n<tools>\n[{TOOL!r}]\n</tools>\nas <tool_call>\n{{'name': <name>}}\n</tool_call>"},
        {"from": "human", "value": "Weather in Rome and Oslo?"},
        {
            "from": "gpt",
            "value": "I look.\n<tool_call>\n{'arguments': {'city': 'Rome', 'now': True}, 'name': 'weather'}\n</tool_call>\n"
            '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n',
        },
        {
            "from": "tool",
            "value": '<tool_response>\n{"name": "weather", "content": {"sky": "blue"}}\n</tool_response>\n'
            "<tool_response>\n{'name': 'weather', 'content': 'rain'}\n</tool_response>",
        },
        {"from": "gpt", "value": "Sunny, and rain."},
    ],
    "task": "Weather",
}  # fmt: skip
ANSWER = """
Thought: I look.
Action: weather
Action Input: {
  "city": "Rome"
}"""
REACT = {
    "id": "Step 3: How is the weather?",
    "conversations": [
        {"from": "system", "value": f"You have access to the following APIs: [{TOOL['function']!r}]"},
        {"from": "user", "value": "\nHow is the weather?\nBegin!\n"},
        {"from": "assistant", "value": ANSWER},
        {"from": "function", "value": '{"error": "", "response": "sunny"}'},
        {"from": "assistant", "value": 'Thought: done\nAction: Finish\nAction Input: {"return_type": "give_answer"}'},
    ],
}
CALLED = {"role": "assistant", "content": "", "function_call": {"name": "weather", "arguments": '{"city": "Rome"}'}}
CHAT = [
    {"role": "user", "content": "Weather in Rome?"},
    CALLED,
    {"role": "function", "content": "sunny", "name": "weather"},
    {"role": "assistant", "content": "It is sunny."},
]


@pytest.fixture
def read(tmp_path):
    """Reads values, one a line, or a file that exists."""

    def call(*values, path=None):
        if path is None:
            path = tmp_path / "log.jsonl"
            path.write_text("".join(f"{json.dumps(value)}\n" for value in values))
        return list(read_traces({"log": path}))

    return call


def calls(message):
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls") or []]


def test_hermes_calls_in_text_are_calls(read):
    (trace,) = read(HERMES)
    assert [message["role"] for message in trace.messages] == ["system", "user", "assistant", "tool", "tool", "assistant"]
    assert trace.messages[2]["content"] == "I look."
    assert calls(trace.messages[2]) == [("weather", {"city": "Rome", "now": True}), ("weather", {"city": "Oslo"})]
    assert [message["content"] for message in trace.messages[3:5]] == ['{"sky": "blue"}', "rain"]
    assert [call["id"] for call in trace.messages[2]["tool_calls"]] == [reply["tool_call_id"] for reply in trace.messages[3:5]]
    assert (trace.tools, trace.tools_inferred, trace.task) == ([TOOL], False, "Weather")


def test_a_hermes_call_that_is_no_json_is_a_broken_call(read):
    record = json.loads(json.dumps(HERMES))
    record["conversations"][2]["value"] = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}\n</tool_call>'
    record["conversations"][3]["value"] = "<tool_response>\nno such call\n</tool_response>"
    (trace,) = read(record)
    (call,) = trace.messages[2]["tool_calls"]
    assert call["function"]["name"] == "weather"
    assert call["function"]["arguments"].startswith('{"name": "weather", "arg')
    assert trace.info["broken_calls"] == 1


def test_hermes_replies_name_calls_that_have_no_id(read):
    """As Hermes Agent writes them; its ids may be equal within a turn, too."""
    record = json.loads(json.dumps(HERMES))
    reply = '<tool_response>\n{{"tool_call_id": "{}", "name": "weather", "content": "{}"}}\n</tool_response>'
    for ids in (("a", "b"), ("a", "a")):
        record["conversations"][3]["value"] = "\n".join(map(reply.format, ids, ("blue", "rain")))
        (trace,) = read(record)
        answered = [message["tool_call_id"] for message in trace.messages[3:5]]
        assert [call["id"] for call in trace.messages[2]["tool_calls"]] == answered
        assert answered[0] == "a" and len(set(answered)) == 2
        assert [message["content"] for message in trace.messages[3:5]] == ["blue", "rain"]


def test_text_about_calls_stays_text(read):
    turns = [
        {"from": "human", "value": "How?"},
        {"from": "gpt", "value": "Write <tool_call>\nyour call\n</tool_call>.\nAction: none"},
    ]
    (trace,) = read({"conversations": turns})
    assert trace.messages[1] == {"role": "assistant", "content": turns[1]["value"]}


def test_toolbench_actions_are_calls(read):
    (trace,) = read(REACT)
    assert [message["role"] for message in trace.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert trace.messages[2]["content"] == "Thought: I look."
    assert calls(trace.messages[2]) == [("weather", {"city": "Rome"})]
    assert calls(trace.messages[4]) == [("Finish", {"return_type": "give_answer"})]
    assert [tool["function"]["name"] for tool in trace.tools] == ["weather"]


def test_toolbench_answers(read):
    answer = {
        "train_messages": [CHAT[:2], CHAT],
        "function": [TOOL["function"]],
        "finish_type": "give_answer",
        "query": "Weather?",
    }
    record = {"win": True, "tree": {}, "forward_args": {}, "answer_generation": answer}
    (trace,) = read(record)
    assert (trace.format, [message["role"] for message in trace.messages]) == (
        "toolbench",
        ["user", "assistant", "tool", "assistant"],
    )
    assert (trace.outcome, trace.info["win"]) == (None, True)
    del answer["train_messages"]
    (item,) = read(record)
    assert item.reason == "no messages"


def test_xlam_rows(read):
    given = {"city": {"type": "str", "description": "Where."}, "days": {"type": "int, optional", "description": "."}}
    given["units"] = {"type": "List[str]", "default": "c"}
    row = {
        "id": 7,
        "query": "Weather in Rome and Oslo?",
        "tools": json.dumps([{"name": "weather", "description": "", "parameters": given}]),
        "answers": json.dumps([{"name": "weather", "arguments": {"city": city}} for city in ("Rome", "Oslo")]),
    }
    (trace,) = read(row)
    assert (trace.format, trace.id, len(trace.messages)) == ("xlam", "7", 2)
    assert calls(trace.messages[1]) == [("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"})]
    schema = trace.tools[0]["function"]["parameters"]
    assert [schema["properties"][name]["type"] for name in given] == ["string", "integer", "array"]
    assert schema["required"] == ["city"]
    (item,) = read(row | {"answers": "[]"})
    assert isinstance(item, Quarantined)


SWE_SMITH = {
    "messages": json.dumps(CHAT),
    "instance_id": "i.1",
    "resolved": True,
    "model": "m",
    "traj_id": "i.1.ab",
    "patch": "+1",
}
TOUCAN = {
    "uuid": "u1",
    "subset_name": "single-turn-original",
    "messages": json.dumps(CHAT),
    "available_tools": json.dumps([TOOL]),
}
APIGEN = {
    "conversations": json.dumps(
        [
            {"from": "human", "value": "Weather in Rome?"},
            {"from": "function_call", "value": '{"name": "weather", "arguments": {"city": "Rome"}}'},
            {"from": "observation", "value": "sunny"},
            {"from": "gpt", "value": "It is sunny."},
        ]
    ),
    "tools": json.dumps([TOOL["function"]]),
}


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("row", "fields", "info"),
    [
        (SWE_SMITH, {"task": "i.1", "outcome": 1.0, "model": "m", "id": "i.1.ab"}, {"patch": "+1"}),
        (TOUCAN, {"id": "u1", "outcome": None}, {"subset_name": "single-turn-original"}),
        (APIGEN, {"outcome": None}, {}),
        ({"trajectory": CHAT, "resolved": 0}, {"outcome": 0.0}, {}),
    ],
)
def test_columns_that_hold_a_conversation(read, tmp_path, kind, row, fields, info):
    path = None
    if kind == "parquet":
        path = tmp_path / "train.parquet"
        pandas.DataFrame([row, row]).to_parquet(path)
    trace = read(row, row, path=path)[1]
    assert [(message["role"], message["content"] or "") for message in trace.messages] == [
        ("user", "Weather in Rome?"), ("assistant", ""), ("tool", "sunny"), ("assistant", "It is sunny."),
    ]  # fmt: skip
    assert calls(trace.messages[1]) == [("weather", {"city": "Rome"})]
    assert (trace.format, trace.source_line) == ("table", 2)
    assert {name: getattr(trace, name) for name in fields} == fields
    assert {name: part for name, part in trace.info.items() if name != "arguments_normalised"} == info
    assert trace.tools_inferred == (row not in (TOUCAN, APIGEN))


@pytest.mark.parametrize(("logged", "field", "value"), USUAL_NAMES)
def test_fields_are_found_by_their_usual_names(read, logged, field, value):
    turns = [{"from": "human", "value": "Hello"}, {"from": "gpt", "value": "Hello."}]
    (trace,) = read({"conversations": turns} | logged)
    assert getattr(trace, field) == value
