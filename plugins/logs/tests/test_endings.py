"""A last turn that was cut, or failed, is marked in each format that says so; a result of no call costs no conversation."""

import copy

import pytest

from plugins.logs.tests.test_formats import ALL
from tests.tracewheel.traces.readers.logged import STORY, conversation, read


def gemini(record):
    contents = record.pop("contents")
    record |= {"request": {"contents": contents[:-1]}, "response": {"candidates": [{"content": contents[-1]}]}}
    record["response"]["candidates"][0]["finishReason"] = "MAX_TOKENS"


def bedrock(record):
    messages = record.pop("messages")
    record |= {"request": {"messages": messages[:-1]}, "response": {"output": {"message": messages[-1]}}}
    record["response"]["stopReason"] = "guardrail_intervened"


def of_openhands(record):
    *_, call = (event for event in record["history"] if event.get("tool_call_metadata", {}).get("model_response"))
    call["tool_call_metadata"]["model_response"]["choices"][0]["finish_reason"] = "length"
    del record["history"][record["history"].index(call) + 1 :]


def of_codex(lines):
    lines.append(
        {"type": "event_msg", "timestamp": lines[-1]["timestamp"], "payload": {"type": "turn_aborted", "reason": "interrupted"}}
    )


def last_of(lines, key, value):
    """The last of the lines with this value."""
    return [line for line in lines if line.get(key) == value][-1]


def of_mini_swe_agent(record):
    record["messages"][-1]["extra"] = {"response": {"choices": [{"finish_reason": "length"}]}}


# By format: what a tracer or SDK writes about the last turn, put into the sample, and the mark.
SAID = {
    "gemini": (lambda lines: gemini(lines[0]), "cut: MAX_TOKENS"),
    "bedrock": (lambda lines: bedrock(lines[0]), "failed: guardrail_intervened"),
    "langchain": (
        lambda lines: lines[0]["messages"][-1]["data"]["response_metadata"].update(finish_reason="length"),
        "cut: length",
    ),
    "pydantic_ai": (lambda lines: lines[0]["messages"][-1].update(finish_reason="error"), "failed: error"),
    "google_adk": (lambda lines: lines[0]["events"][-1].update(finish_reason="MAX_TOKENS"), "cut: MAX_TOKENS"),
    "vercel_ai": (lambda lines: lines[0]["messages"][-1]["metadata"].update(finishReason="length"), "cut: length"),
    "inspect": (
        lambda lines: lines[0]["samples"][0]["output"].update(choices=[{"stop_reason": "model_length"}]),
        "cut: model_length",
    ),
    "mini_swe_agent": (lambda lines: of_mini_swe_agent(lines[0]), "cut: length"),
    "openhands": (lambda lines: of_openhands(lines[0]), "cut: length"),
    "claude_code": (
        lambda lines: last_of(lines, "type", "assistant")["message"].update(stop_reason="max_tokens"),
        "cut: max_tokens",
    ),
    "codex": (of_codex, "failed: interrupted"),
    "langfuse": (
        lambda lines: lines[0]["observations"][0].update(level="ERROR", statusMessage="timed out"),
        "failed: timed out",
    ),
    "langsmith": (lambda lines: last_of(lines, "run_type", "llm").update(error="RateLimitError"), "failed: RateLimitError"),
    "weave": (lambda lines: lines[-1]["output"]["choices"][0].update(finish_reason="length"), "cut: length"),
    "openinference": (lambda lines: lines[-1]["attributes"].update({"llm.finish_reason": "length"}), "cut: length"),
    "mlflow": (
        lambda lines: lines[0]["data"]["spans"][-1].update(status={"code": "STATUS_CODE_ERROR", "message": "gone"}),
        "failed: gone",
    ),
    "xlam": (lambda lines: lines[0].update(finish_reason="length"), "cut: length"),
}


@pytest.mark.parametrize("name", SAID)
def test_a_last_turn_that_is_not_whole_is_marked(name):
    change, mark = SAID[name]
    lines = copy.deepcopy(ALL[name])
    change(lines)
    (trace,) = read(*lines)
    assert [message.get("unfinished") for message in trace.messages] == [None] * (len(trace.messages) - 1) + [mark]
    (whole,) = read(*ALL[name])
    assert "unfinished" not in str(whole.messages)


def test_a_failed_call_without_an_answer_is_marked_where_the_answer_is_missing():
    lines = copy.deepcopy(ALL["langsmith"])
    last_of(lines, "run_type", "llm").update(error="Timeout", outputs=None)
    (trace,) = read(*lines)
    assert [message["role"] for message in trace.messages][-1] == "tool"
    assert trace.messages[-1]["unfinished"] == "failed: Timeout"


def test_a_result_of_no_call_is_left_out_and_told():
    record = copy.deepcopy(ALL["atif"][0])
    results = next(step for step in record["steps"] if step.get("tool_calls"))["observation"]["results"]
    results.insert(0, {"source_call_id": "gone", "content": "lost"})
    (trace,) = read(record)
    assert conversation(trace) == STORY and trace.info["results_without_a_call"] == 1
    assert "lost" not in str(trace.messages)
