"""Readers that are a mapping in YAML: paths, roles, calls with their results, fields, and what is said of a missing path."""

import json

import pandas
import pytest
import yaml

from flows.cli import main
from tracewheel.config import IngestConfig, ReaderConfig
from tracewheel.core.paths import JsonPath, MissingPath
from tracewheel.traces.quarantine import ADVICE, Quarantined
from tracewheel.traces.readers.plugins import own_readers
from tracewheel.traces.readers.reading import read_traces

CITY = {"city": "Rome"}
DESK = """
name: desk
conversation: dialog.turns
messages:
  role: speaker
  text: [text, markdown]
  calls: actions
  call: {name: tool, arguments: input, result: output}
roles: {bot: assistant, visitor: user, ticker: skip}
system: setup.prompt
tools: setup.tools
fields: {outcome: review.solved, user: visitor.id, created: at, model: =bot-2, shop: shop.name}
required: [outcome]
"""
RECORD = {
    "at": 1790000000,
    "shop": {"name": "Rome"},
    "visitor": {"id": 7},
    "review": {"solved": "yes"},
    "setup": {"prompt": "Be kind.", "tools": [{"name": "weather", "parameters": {"type": "object"}}]},
    "dialog": json.dumps(
        {
            "turns": [
                {"speaker": "visitor", "text": "Weather in Rome?"},
                {"speaker": "ticker", "shown": 1},
                {
                    "speaker": "bot",
                    "text": "",
                    "actions": [{"tool": "weather", "input": {"city": "Rome"}, "output": {"sky": "blue"}}],
                },
                {"speaker": "bot", "markdown": "It is **sunny**."},
            ]
        }
    ),
}


@pytest.fixture
def read(tmp_path):
    """Reads values with a mapping, one a line or, with `whole`, as one document."""

    def call(mapping, *values, whole=False):
        path = tmp_path / "log.json"
        path.write_text(json.dumps(values[0]) if whole else "".join(f"{json.dumps(value)}\n" for value in values))
        args = yaml.safe_load(mapping) if isinstance(mapping, str) else mapping
        return list(read_traces({"log": path}, own=own_readers([ReaderConfig(kind="mapping", args=args)])))

    return call


def test_a_record_is_read_by_its_paths(read):
    (trace,) = read(DESK, RECORD)
    assert [(message["role"], message["content"]) for message in trace.messages] == [
        ("system", "Be kind."), ("user", "Weather in Rome?"), ("assistant", ""), ("tool", '{"sky": "blue"}'),
        ("assistant", "It is **sunny**."),
    ]  # fmt: skip
    (call,) = trace.messages[2]["tool_calls"]
    assert (call["function"], call["id"]) == (
        {"name": "weather", "arguments": '{"city": "Rome"}'},
        trace.messages[3]["tool_call_id"],
    )
    assert (trace.format, trace.outcome, trace.user, trace.model) == ("desk", 1.0, "7", "bot-2")
    assert (trace.created, trace.info["shop"]) == ("2026-09-21T14:13:20Z", "Rome")
    assert [tool["function"]["name"] for tool in trace.tools] == ["weather"] and not trace.tools_inferred


def test_a_mapping_in_a_file_on_the_command_line(tmp_path, capsys):
    (tmp_path / "desk.yaml").write_text(DESK)
    (tmp_path / "log.jsonl").write_text(json.dumps(RECORD) + "\n")
    out = tmp_path / "out"
    assert main(["ingest", str(tmp_path / "log.jsonl"), "--reader", str(tmp_path / "desk.yaml"), "--out", str(out)]) == 0
    assert pandas.read_parquet(out / "traces.parquet").format.tolist() == ["desk"]


def turn(number):
    """A turn of the dialog of a record."""
    return lambda record: record["dialog"]["turns"][number]


def changed(change):
    record = json.loads(json.dumps(RECORD)) | {"dialog": json.loads(RECORD["dialog"])}
    change(record)
    return record


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [
        (lambda r: r.pop("dialog"), "unknown format", "'dialog' is missing; the record is an object with the keys 'at'"),
        (lambda r: r["dialog"].pop("turns"), "unknown format", "'turns' is missing; 'dialog' is an empty object"),
        (lambda r: turn(0)(r).pop("speaker"), "message unreadable", "element 0: role 'speaker': 'speaker' is missing"),
        (lambda r: turn(0)(r).update(speaker="cat"), "unknown role", "element 0: 'cat' at 'speaker'; add it to 'roles'"),
        (lambda r: turn(3)(r).pop("markdown"), "message unreadable", "element 3: neither a text nor a call: 'text'"),
        (lambda r: turn(2)(r)["actions"][0].pop("tool"), "tool calls unreadable", "element 2, call 0: name 'tool'"),
        (lambda r: r["review"].pop("solved"), "field unreadable", "outcome: 'review.solved': 'solved' is missing"),
        (lambda r: r["review"].update(solved="perhaps"), "reward is not a number", "'review.solved' is 'perhaps'"),
    ],
)  # fmt: skip
def test_the_path_that_is_missing_is_named(read, change, reason, said):
    (item,) = read(DESK, changed(change))
    assert isinstance(item, Quarantined)
    assert item.reason == reason
    assert said in item.detail


def test_a_record_of_question_and_answer_is_a_conversation(read):
    rules = [{"role": "=user", "text": "q"}, {"role": "=assistant", "text": "a"}]
    (trace,) = read({"conversation": ".", "messages": rules}, {"q": "Hi?", "a": "Hi.", "ms": 3})
    assert [message["content"] for message in trace.messages] == ["Hi?", "Hi."]
    assert trace.info == {"ms": 3}
    pairs = [{"role": "=user", "text": "[0]"}, {"role": "=assistant", "text": "[1]"}]
    (trace,) = read({"conversation": "history", "messages": pairs}, {"history": [["Hi?", "Hi."], ["Well?", "Well."]]})
    assert [message["content"] for message in trace.messages] == ["Hi?", "Hi.", "Well?", "Well."]


EVENTS = [
    {"kind": "say", "by": "human", "body": {"text": "Weather?"}},
    {"kind": "use", "fn": "weather", "params": '{"city": "Rome"}', "ref": 1},
    {"kind": "got", "ref": 1, "value": {"sky": "blue"}},
    {"kind": "say", "by": "ai", "body": {"text": [{"type": "text", "text": "Sun"}, {"type": "text", "text": "ny."}]}},
]
USE = {"name": "fn", "arguments": "params", "id": "ref"}
RULES = {
    "conversation": "[]",
    "messages": [
        {"when": {"kind": "say"}, "role": "by", "text": "body.text"},
        {"when": {"kind": "use", "fn": "*"}, "role": "=assistant", "text": [], "calls": ".", "call": USE},
        {"when": {"kind": "got"}, "role": "=tool", "text": "value", "id": "ref"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("nested", [False, True])
def test_events_of_different_kinds_have_a_rule_each(read, nested):
    value = {"events": EVENTS} if nested else EVENTS
    (trace,) = read(RULES | ({"conversation": "events"} if nested else {}), value, whole=True)
    assert [message["role"] for message in trace.messages] == ["user", "assistant", "tool", "assistant"]
    assert trace.messages[1]["tool_calls"][0]["id"] == trace.messages[2]["tool_call_id"] == "1"
    assert trace.messages[3]["content"] == "Sunny."


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "mapping: conversation: Field required"),
        ({"conversation": "a..b"}, "'a..b' is no path"),
        ({"conversation": "a", "roles": {"bot": "robot"}}, "'robot' is no role"),
        (
            {"conversation": "a", "messages": {"txt": "b"}},
            "messages.0.txt: no such key; did you mean text? "
            "(allowed: role, message, joins, text, reasoning, calls, call, id, tool, when)",
        ),
        ({"conversation": "a", "messages": {"call": {"args": "b"}}}, "(allowed: name, arguments, id, result)"),
        ({"conversation": "a", "environment": {"rows": "b"}}, "environment: 'kind' is missing, as in kind: =module:Class"),
        ({"conversation": "a", "fields": {"prompt": "b"}}, "'prompt' is a key of the mapping itself"),
    ],
)
def test_a_mistake_in_a_mapping_is_named(args, said):
    with pytest.raises(ValueError) as raised:
        IngestConfig(readers=({"kind": "mapping", "args": args},))
    assert said in str(raised.value)


VALUE = {"a": {"b": [1, {"c": "x"}]}, "d.e": [[{"f": 1}, {"f": 2}], [{"f": 3}]], "g": '{"h": [0]}', "n": None}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".", VALUE), ("a.b[0]", 1), ("a.b[-1].c", "x"), ('"d.e"[0][1].f', 2), ('"d.e"[][].f', [1, 2, 3]), ("g.h[0]", 0),
        ("n", None),
        ('"d.e"[][0]', [{"f": 1}, {"f": 3}]),
    ],
)  # fmt: skip
def test_paths(path, found):
    assert JsonPath(path).find(VALUE) == found


@pytest.mark.parametrize("path", ["", "a.", "..a", "a[x]", "a[", 'a"b', ".a", "a.[0]b"])
def test_texts_that_are_no_path(path):
    with pytest.raises(ValueError, match="path"):
        JsonPath(path)


@pytest.mark.parametrize("path", ["b", "a.b.c", "a.b[2]", "a.b[-3]", "n.x", "a[]", "g.h.i"])
def test_missing_paths(path):
    with pytest.raises(MissingPath, match="is missing|without an element|not a list"):
        JsonPath(path).find(VALUE)
    assert JsonPath(path).get(VALUE, 5) == 5


ROWS = [
    {"chat": {"id": 1}, "by": "user", "say": "Hi?", "who": "u", "at": 1790000000},
    {"chat": {"id": 2}, "by": "user", "say": "Ho?"},
    {"chat": {"id": 1}, "by": "bot", "say": "Hi.", "ok": True},
    {"chat": {"id": 2}, "by": "bot", "say": "Ho."},
    {"by": "bot", "say": "Whose?"},
]


def test_rows_of_one_message_are_gathered_by_their_conversation(read):
    rows = {"conversation": ".", "group": "chat.id", "messages": {"role": "by", "text": "say"}}
    fields = {"outcome": "ok", "user": "who", "session": "chat.id", "created": "at"}
    lost, *traces = read(rows | {"fields": fields}, *ROWS)
    assert [[message["content"] for message in trace.messages] for trace in traces] == [["Hi?", "Hi."], ["Ho?", "Ho."]]
    assert [(trace.session, trace.user, trace.outcome, trace.source_line) for trace in traces] == [
        ("1", "u", 1.0, 1),
        ("2", None, None, 2),
    ]
    assert "group 'chat.id': 'chat' is missing" in lost.detail


TICKET = {
    "ask": "Close the refund ticket.",
    "trail": [{"do": {"fn": "close", "kw": {"ticket": "t1"}}, "got": "ok"}, {"say": "Done."}],
    "desk": {"tickets": [["t1", "open"]]},
    "want": [["t1", "closed"]],
}
STEPS = """
name: tickets
conversation: trail
messages:
  - {when: {do: "*"}, role: =assistant, calls: ., call: {name: do.fn, arguments: do.kw, result: got}}
  - {when: {say: "*"}, role: =assistant, text: say}
"""
WHOLE = f"""{STEPS}
prompt: ask
environment: {{kind: =triage:Desk, start: {{tickets: desk.tickets}}, want: want, tier: 2}}
"""


def test_the_request_and_the_starting_point_come_from_beside_the_conversation(read):
    (trace,) = read(WHOLE, TICKET)
    assert [message["role"] for message in trace.messages] == ["user", "assistant", "tool", "assistant"]
    assert trace.messages[0]["content"] == "Close the refund ticket."
    assert trace.environment == {
        "kind": "triage:Desk",
        "start": {"tickets": [["t1", "open"]]},
        "want": [["t1", "closed"]],
        "tier": 2,
    }
    (trace,) = read(f"{STEPS}\nenvironment: start", TICKET | {"start": {"kind": "triage:Desk", "prompt": "Close it."}})
    assert trace.environment == {"kind": "triage:Desk", "prompt": "Close it."}


@pytest.mark.parametrize(
    ("mapping", "lacks", "reason", "said"),
    [
        (WHOLE, "ask", "message unreadable", ["prompt: 'ask': 'ask' is missing", "'trail'"]),
        (WHOLE, "desk", "environment unreadable", ["'desk.tickets': 'desk' is missing", "'want'"]),
        (STEPS.replace(", result: got", ""), "", "call without a reply", ["call.result (keys there: 'do', 'got')"]),
        (STEPS.replace("got", "seen"), "", "call without a reply", ["element 1", "call.result 'seen': 'seen' is missing"]),
    ],
)
def test_what_stands_beside_the_conversation_or_the_call_and_is_not_found(read, mapping, lacks, reason, said):
    (item,) = read(mapping, {key: value for key, value in TICKET.items() if key != lacks})
    assert item.reason == reason
    assert all(words in item.detail for words in said), item.detail
    assert "lost" not in ADVICE["call without a reply"]


def test_a_wrong_key_of_a_mapping_file_names_the_file_and_the_keys(tmp_path, capsys):
    (tmp_path / "desk.yaml").write_text(WHOLE.replace("messages:", "mesages:"))
    assert main(["ingest", str(tmp_path), "--reader", str(tmp_path / "desk.yaml"), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    for words in (f"{tmp_path / 'desk.yaml'}: mapping: mesages", "did you mean messages?", "(allowed: conversation, name,"):
        assert words in said


def test_a_trace_without_its_users_message_is_called_incomplete(tmp_path, capsys):
    (tmp_path / "steps.yaml").write_text(STEPS)
    (tmp_path / "log.jsonl").write_text(json.dumps(TICKET) + "\n")
    log, mapping = str(tmp_path / "log.jsonl"), ["--reader", str(tmp_path / "steps.yaml")]
    assert main(["data", "explain", log, *mapping]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "incomplete, without a user's message" in said and "everything in the record" not in said
    assert main(["ingest", log, *mapping, "--out", str(tmp_path / "out")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1 traces are incomplete: they have no user's message" in said
    assert "`prompt` of a mapping" in said
    assert json.loads((tmp_path / "out" / "report.json").read_text())["without_user"] == 1


SESSION = {
    "events": [
        {"kind": "session.begun", "at": 1},
        {"kind": "asked", "text": "Weather in Rome?"},
        {"kind": "thought", "text": "I look."},
        {"kind": "said", "text": "One moment."},
        {"kind": "ran", "tool": "weather", "where": "Rome", "got": "sunny"},
        {"kind": "session.paused", "at": 2},
        {"kind": "whole", "message": {"role": "ai", "content": [{"type": "text", "text": "It is sunny."}]}},
    ]
}
SESSION_RULES = [
    {"when": {"kind": ["session.*", "tick"]}, "role": "=skip"},
    {"when": {"kind": "asked"}, "role": "=user", "text": "text"},
    {"when": {"kind": "thought"}, "role": "=assistant", "text": [], "reasoning": "text"},
    {"when": {"kind": "said"}, "role": "=assistant", "text": "text", "joins": True},
    {
        "when": {"kind": "ran"},
        "role": "=assistant",
        "joins": True,
        "text": [],
        "calls": ".",
        "call": {"name": "tool", "arguments": {"city": "where"}, "result": "got"},
    },
    {"when": {"kind": "whole"}, "role": "message.role", "message": "message"},
]


def said_in(trace):
    return [
        (
            message["role"],
            message["content"] or "",
            [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls", ())],
        )
        for message in trace.messages
    ]


def test_rules_skip_join_and_take_whole_messages(read):
    (trace,) = read({"conversation": "events", "messages": SESSION_RULES}, SESSION)
    assert said_in(trace) == [
        ("user", "Weather in Rome?", []),
        ("assistant", "One moment.", [("weather", {"city": "Rome"})]),
        ("tool", "sunny", []),
        ("assistant", "It is sunny.", []),
    ]
    assert trace.messages[1]["reasoning"] == "I look."


def test_an_element_that_no_rule_fits_is_named_by_what_the_rules_look_at(read):
    (item,) = read(
        {"conversation": "events", "messages": SESSION_RULES}, {"events": [*SESSION["events"], {"kind": "vanished"}]}
    )
    assert (item.reason, item.detail.endswith("(kind: 'vanished')")) == ("message unreadable", True)


def test_a_tool_without_a_name_is_no_silent_loss(read):
    mapping = {"conversation": "events", "messages": SESSION_RULES, "tools": "offered"}
    offered = [{"name": "weather", "parameters": {}}, {"fn": "roll", "args": {}}]
    (item,) = read(mapping, {**SESSION, "offered": offered})
    assert item.reason == "tools unreadable" and "'fn', 'args'" in item.detail
