"""Turns that were cut or failed, prompts that an exporter cut, and results of no call, in the formats of the core."""

import json

import pytest

from tests.tracewheel.traces.readers.logged import read
from tracewheel.config import IngestConfig
from tracewheel.core.endings import ENDINGS, mark_of, prompt_is_cut
from tracewheel.core.types import Trace
from tracewheel.traces.ingest import ingest
from tracewheel.traces.quarantine import Quarantined

ASKED = [{"role": "system", "content": "S"}, {"role": "user", "content": "How many?"}]
CALLED = {"role": "assistant", "content": None,
          "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "stock", "arguments": "{}"}}]}  # fmt: skip
REPLY = {"role": "tool", "tool_call_id": "c1", "content": "7"}


def marks(trace):
    return [message.get("unfinished") for message in trace.messages]


@pytest.mark.parametrize(
    ("word", "mark"),
    [
        ("stop", ""),
        ("tool_calls", ""),
        ("\nObservation:", ""),
        ("length", "cut: length"),
        ("maxTokens", "cut: maxTokens"),
        ("FinishReason.MAX_TOKENS", "cut: FinishReason.MAX_TOKENS"),
        ("content-filter", "failed: content-filter"),
    ],
)
def test_one_table_has_the_words_of_all_vendors(word, mark):
    assert mark_of(word) == mark
    assert set(ENDINGS.values()) == {"complete", "cut", "failed"}


def chat(said, reason):
    return {"request": {"messages": [*ASKED, CALLED, REPLY], "model": "m"},
            "response": {"choices": [{"message": said, "finish_reason": reason}]}}  # fmt: skip


def stream(*deltas, reason):
    events = [{"choices": [{"index": 0, "delta": {"content": delta}, "finish_reason": None}]} for delta in deltas]
    events += [{"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}] if reason else []
    return {**chat({}, None), "response": "".join(f"data: {json.dumps(event)}\n\n" for event in events)}


def response(status, **more):
    said = [{"type": "output_text", "text": "The"}]
    return {"object": "response", "status": status, "instructions": "S", **more,
            "output": [{"type": "message", "role": "assistant", "content": said}]}  # fmt: skip


@pytest.mark.parametrize(
    ("record", "mark"),
    [
        (chat({"role": "assistant", "content": "There are sev"}, "length"), "cut: length"),
        (chat({"role": "assistant", "content": "No.", "refusal": "No."}, "stop"), "failed: refusal"),
        (stream("There ", "are", reason="stop"), None),
        (stream("There ", "are", reason="content_filter"), "failed: content_filter"),
        (stream("There ", "are", reason=None), "cut: incomplete"),
        ({"messages": [*ASKED, {"role": "assistant", "content": "The"}], "finish_reason": "length"}, "cut: length"),
        ({"messages": [*ASKED, {"role": "assistant", "content": "The", "stop_reason": "max_tokens"}]}, "cut: max_tokens"),
        ({"system": "S", "messages": [ASKED[1], {"role": "assistant", "content": [{"type": "text", "text": "I"}]}],
          "stop_reason": "refusal"}, "failed: refusal"),
        (response("incomplete", incomplete_details={"reason": "max_output_tokens"}), "cut: max_output_tokens"),
        (response("completed"), None),
        (response("failed", error={"code": "server_error", "message": "x"}), "failed: failed"),
        ({"request": {"messages": ASKED, "model": "m"}, "response": {"error": {"type": "overloaded_error", "message": "x"}}},
         "no assistant turn"),
        ({"request": {"messages": [*ASKED, CALLED, REPLY], "model": "m"}, "response": {"error": {"type": "overloaded_error"}}},
         "failed: overloaded_error"),
    ],
)  # fmt: skip
def test_the_last_turn_says_how_it_ended(record, mark):
    (trace,) = read(record)
    if isinstance(trace, Quarantined):
        assert trace.reason == mark
    else:
        assert marks(trace) == [None] * (len(trace.messages) - 1) + [mark]


def test_a_turn_inside_a_conversation_keeps_its_mark_when_the_client_sends_it_back():
    first = {"role": "assistant", "content": "There are sev"}
    again = [*ASKED, first, {"role": "user", "content": "Go on."}]
    asked = [(ASKED, first, "length"), (again, {"role": "assistant", "content": "7"}, "stop")]
    records = [
        {**chat(said, reason), "created": at, "request": {"messages": sent}} for at, (sent, said, reason) in enumerate(asked)
    ]
    (trace,) = read(*records)
    assert marks(trace) == [None, None, "cut: length", None, None]


def test_a_paused_turn_that_went_on_is_whole():
    paused = {"role": "assistant", "content": "I look.", "stop_reason": "pause_turn"}
    messages = [*ASKED, paused, {"role": "assistant", "content": "7"}]
    assert marks(read({"messages": messages})[0]) == [None] * 4
    assert marks(read({"messages": messages[:3]})[0])[-1] == "cut: pause_turn"


def span(number, messages, output=None, **more):
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(messages)}
    if output:
        attributes["gen_ai.output.messages"] = json.dumps([output])
    return {"traceId": "a" * 32, "spanId": f"{number:016x}", "name": "chat", "startTimeUnixNano": str(number),
            "attributes": attributes | more.pop("attributes", {}), **more}  # fmt: skip


def test_spans_say_that_a_call_failed_and_a_repeated_call_counts():
    whole = {"role": "assistant", "content": "7", "finish_reason": "stop"}
    broken = span(1, ASKED, attributes={"error.type": "timeout"}, status={"code": 2, "message": "stream cut"})
    assert marks(read(broken, span(2, ASKED, whole))[0]) == [None] * 3
    partial = span(1, ASKED, {"role": "assistant", "content": "Sev"}, status={"code": 2, "message": "stream cut"})
    assert marks(read(partial)[0])[-1] == "failed: stream cut"
    assert [message["content"] for message in read(partial, span(2, ASKED, whole))[0].messages][-1] == "7"


def test_ingest_counts_what_is_not_whole(tmp_path):
    stray = {"role": "tool", "tool_call_id": "gone", "content": "x"}
    records = [
        {"messages": [*ASKED, {"role": "assistant", "content": "The"}], "finish_reason": "length"},
        {"messages": [*ASKED, CALLED, REPLY, stray, {"role": "assistant", "content": "7", "finish_reason": "error"}]},
        {"messages": [{"role": "user", "content": "Read this: lorem… [truncated]"}, {"role": "assistant", "content": "18 C"}]},
    ]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    report = ingest(IngestConfig(paths=(str(tmp_path / "log.jsonl"),)), tmp_path / "out")
    assert report["kept"] == 3
    assert [report[name] for name in ("cut_turns", "failed_turns", "cut_prompts", "results_left_out")] == [1, 1, 1, 1]


def test_a_result_that_may_be_a_calls_under_another_name_is_not_left_out():
    (item,) = read({"messages": [*ASKED, CALLED, {**REPLY, "tool_call_id": "other"}, {"role": "assistant", "content": "7"}]})
    assert isinstance(item, Quarantined) and item.reason == "tool reply without a call"
    (item,) = read({"messages": [*ASKED, REPLY, {"role": "assistant", "content": "7"}]})
    assert isinstance(item, Quarantined)


@pytest.mark.parametrize(
    "text",
    [
        "Do …[truncated]",
        "Do ... (truncated)",
        "x [TRUNCATED]",
        "x...[truncated 300 chars]",
        "<truncated due to size exceeding limit>",
        "[... content truncated due to size limit ...]",
        "x…truncated",
        "abc ... (litellm_truncated 7422 chars) ... xyz",
        '[{"role": "user", "parts": [{"type": "text", "content": "Read this: lorem ip',
    ],
)
def test_prompts_that_an_exporter_cut(text):
    assert prompt_is_cut([{"role": "user", "content": text}])


@pytest.mark.parametrize(
    "text",
    ["Why was my list truncated?", "Is the table (truncated) ok?", "See [a, b, truncated]", "What does `[truncated]` mean?",
     '{"role": "admin", "user": 3}', "", "Round it (no decimals, truncated)"],
)  # fmt: skip
def test_prompts_that_only_look_like_it(text):
    assert not prompt_is_cut([{"role": "user", "content": text}])
    later = [
        {"role": "user", "content": "ok"},
        {"role": "assistant", "content": "x"},
        {"role": "user", "content": "[truncated]"},
    ]
    assert not prompt_is_cut(later)


def test_a_trace_keeps_its_marks_when_it_is_read_again():
    (trace,) = read({"messages": [*ASKED, {"role": "assistant", "content": "", "finish_reason": "length"}]})
    assert isinstance(trace, Trace) and marks(trace)[-1] == "cut: length"
    (again,) = read({**trace.to_record()})
    assert again.messages == trace.messages
