"""Langfuse's exports as frameworks' tracers fill them, each built as a real one (benchmarks/results/formats.md)."""

import json

import pytest

from tracewheel.core.types import Trace
from tracewheel.traces.json_cutter import Piece
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.log_reader import LogReader
from tracewheel.traces.spool import Spool
from tracewheel_logs.langfuse_calls import read_repr, read_transcript

ASKED, SUNNY, DONE = "Weather in Rome?", "sunny", "It is sunny in Rome."
SYSTEM = "You tell the weather."
CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}


def read(*observations, **about):
    """Read an export; observations are (type, name, parent, input, output) and start one second after another."""
    found = [
        {
            "id": f"o{number}", "type": kind, "name": name, "parentObservationId": parent, "model": None,
            "startTime": f"2026-10-01T08:00:{number:02}.000Z", "input": given, "output": said, "metadata": None,
        }
        for number, (kind, name, parent, given, said) in enumerate(observations)
    ]  # fmt: skip
    record = {"trace": {"id": "t", "timestamp": "2026-10-01T08:00:00Z", **about}, "observations": found}
    with Spool() as spool:
        (item,) = LogReader("langfuse", spool).read([Piece(json.dumps(record).encode(), 1, 0)], "log")
    return item


def story(trace):
    assert isinstance(trace, Trace), trace
    lines = []
    for message in trace.messages:
        calls = [call["function"]["name"] for call in message.get("tool_calls") or []]
        lines.append((message["role"], message["content"] or "", *calls))
    return lines


WHOLE = [("system", SYSTEM), ("user", ASKED), ("assistant", "", "weather"), ("tool", SUNNY), ("assistant", DONE)]


def text(said):
    return json.dumps(said)


def repr_of(role, content, calls=None, call_id=None):
    """As agno's messages print themselves, with another object's repr among the fields."""
    return f"role={role!r} content={content!r} tool_call_id={call_id!r} tool_calls={calls!r} timer=<Timer at (a b)>"


def part(kind, **fields):
    return {"type": kind, **fields}


TURN = [{"role": "assistant", "parts": [part("tool_call", id="c1", name="weather", arguments='{"city": "Rome"}')]}]
RESULT = [{"role": "tool", "parts": [part("tool_call_response", id="c1", response=SUNNY)]}]
FINAL = [{"role": "assistant", "parts": [part("text", content=DONE)]}]
PROMPT = [{"role": "system", "parts": [part("text", content=SYSTEM)]}, {"role": "user", "parts": [part("text", content=ASKED)]}]
KOOG = text([{"function": {"name": "weather", "arguments": '{"city": "Rome"}'}, "id": "c1", "type": "function"}])
CHAT = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ASKED}]
GEMINI = {"model": "g", "contents": [{"role": "user", "parts": [{"text": ASKED}]}], "config": {"system_instruction": SYSTEM}}
GEMINI_CALL = {"parts": [{"function_call": {"name": "weather", "args": {"city": "Rome"}}}], "role": "model"}
GEMINI_RESULT = {"parts": [{"function_response": {"name": "weather", "response": {"result": SUNNY}}}], "role": "user"}
USED = {"content": [part("tool_use", id="c1", name="weather", input={"city": "Rome"})], "role": "assistant"}

SAMPLES = {
    "claude-agent: each call alone, the system and results elsewhere": [
        ("SPAN", "claude.conversation", None, text({"prompt": ASKED, "system": SYSTEM}), None),
        ("GENERATION", "turn", "o0", text({"content": ASKED, "role": "user"}), text(USED)),
        ("TOOL", "weather", "o0", text({"input": {"city": "Rome"}}), text({"content": [part("text", text=SUNNY)]})),
        ("GENERATION", "turn", "o0", text({"content": "role"}), text({"role": "assistant", "content": DONE})),
    ],
    "microsoft-agent: only what is new in each call": [
        ("AGENT", "invoke_agent", None, text(PROMPT), None),
        ("GENERATION", "chat", "o0", text(PROMPT[1:]), text(TURN)),
        ("TOOL", "weather", "o0", text({"city": "Rome"}), text(SUNNY)),
        ("GENERATION", "chat", "o0", text(RESULT), text(FINAL)),
    ],
    "microsoft-agent, older: the call is repeated, in Python's repr": [
        ("AGENT", "invoke_agent", None, repr(PROMPT), None),
        ("GENERATION", "chat", "o0", repr(PROMPT[1:]), repr(TURN)),
        ("GENERATION", "chat", "o0", repr(TURN + RESULT), repr(FINAL)),
    ],
    "agno: reprs, and a transcript within": [
        ("GENERATION", "invoke", None, text({"messages": [repr_of("system", SYSTEM), repr_of("user", ASKED)]}),
         text({"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [CALL]}}]})),
        ("GENERATION", "chat", "o0", f"developer: {SYSTEM}\nuser: {ASKED}", "None"),
        ("GENERATION", "invoke", None, text({"messages": [
            repr_of("system", SYSTEM), repr_of("user", ASKED), repr_of("assistant", None, [CALL]),
            repr_of("tool", SUNNY, None, "c1")]}), text({"choices": [{"message": {"role": "assistant", "content": DONE}}]})),
        ("GENERATION", "chat", "o2", f"developer: {SYSTEM}\nuser: {ASKED}\nassistant: None\ntool: {SUNNY}", DONE),
    ],
    "koog: calls as text, under the role of a tool": [
        ("GENERATION", "llm.chat", None, text(CHAT), text([{"role": "assistant", "content": KOOG}])),
        ("GENERATION", "llm.chat", None, text([*CHAT, {"role": "tool", "content": KOOG}, {"role": "tool", "content": SUNNY}]),
         text([{"role": "assistant", "content": DONE}])),
    ],
    "google-adk: contents": [
        ("GENERATION", "call_llm", None, text(GEMINI), text({"content": GEMINI_CALL})),
        ("GENERATION", "call_llm", None, text({**GEMINI, "contents": [*GEMINI["contents"], GEMINI_CALL, GEMINI_RESULT]}),
         text({"content": {"parts": [{"text": DONE}], "role": "model"}})),
    ],
    "langgraph-js: a tool's name as the role": [
        ("GENERATION", "ChatOpenAI", None, text(CHAT), text({"role": "assistant", "content": "", "tool_calls": [CALL]})),
        ("GENERATION", "ChatOpenAI", None, text([*CHAT, {"role": "assistant", "content": "", "tool_calls": [CALL]},
         {"role": "weather", "content": SUNNY, "additional_kwargs": {}}]), text({"role": "assistant", "content": DONE})),
    ],
    "beeai: the last answer is only the trace's": [
        ("GENERATION", "start", None, text([*CHAT, {"role": "assistant", "content": None, "tool_calls": [CALL]},
         {"role": "tool", "tool_call_id": "c1", "content": SUNNY}]), None),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_each_frameworks_conversation_is_read_whole(name):
    said = [
        (role, *rest) for role, *rest in story(read(*SAMPLES[name], output=text(repr({"role": "assistant", "text": DONE}))))
    ]
    said = [line if line[0] != "tool" else ("tool", SUNNY if SUNNY in line[1] else line[1]) for line in said]
    assert said == WHOLE


def test_parallel_calls_get_the_results_of_runs_with_their_arguments():
    """Three parts of one response, logged apart; the runs start in another order than the calls."""
    other = {"content": [part("tool_use", id="c2", name="weather", input={"city": "Oslo"})], "role": "assistant"}
    trace = read(
        ("SPAN", "conversation", None, text({"prompt": ASKED, "system": SYSTEM}), None),
        (
            "GENERATION",
            "turn",
            "o0",
            text({"content": ASKED, "role": "user"}),
            text({"role": "assistant", "content": "I look."}),
        ),
        ("GENERATION", "turn", "o0", text({"content": "role"}), text(USED)),
        ("GENERATION", "turn", "o0", text({"content": "role"}), text(other)),
        ("TOOL", "weather", "o0", text({"input": {"city": "Oslo"}}), "rain"),
        ("TOOL", "weather", "o0", text({"input": {"city": "Rome"}}), SUNNY),
        ("GENERATION", "turn", "o0", text({"content": "role"}), text({"role": "assistant", "content": DONE})),
    )
    assert story(trace)[2:] == [
        ("assistant", "I look.", "weather", "weather"),
        ("tool", SUNNY),
        ("tool", "rain"),
        ("assistant", DONE),
    ]
    assert "other_conversations" not in trace.info


def test_a_trace_whose_output_was_not_read_goes_to_quarantine():
    chat = ("GENERATION", "chat", None, text(CHAT), text({"role": "assistant", "content": "Hello."}))
    item = read(chat, output=text("Berlin: twelve degrees and a strong wind"))
    assert isinstance(item, Quarantined)
    assert item.reason == "content was not read"
    assert isinstance(read(chat, output=text("Hello")), Trace)


def test_a_programs_own_word_after_the_call_that_ends_the_work_costs_no_trace():
    call = {"id": "c", "type": "function", "function": {"name": "finish", "arguments": "{}"}}
    chat = ("GENERATION", "chat", None, text(CHAT), text({"role": "assistant", "content": None, "tool_calls": [call]}))
    trace = read(chat, output=text("done: two files moved"))
    assert isinstance(trace, Trace)
    assert trace.messages[-1]["tool_calls"][0]["function"]["name"] == "finish"


def test_reprs_and_transcripts_are_read_and_other_text_is_left():
    assert read_repr(repr_of("user", 'it\'s ("x") a=b', None))["content"] == 'it\'s ("x") a=b'
    assert [read_repr(one) for one in ("role model", "{not a dict", "role=", "hello", "[1, x]")] == [None] * 5
    assert read_transcript("system: a\nb\nuser: c") == [{"role": "system", "content": "a\nb"}, {"role": "user", "content": "c"}]
    assert read_transcript("user: a\nassistant: None\ntool: x") is None
    assert read_transcript("The user: a") is None
