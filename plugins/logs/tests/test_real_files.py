"""Logs of other people's agents, against counts made with jq and plain Python."""

import json
from pathlib import Path

import pandas
import pytest

from tracewheel.config import IngestConfig, RedactionConfig
from tracewheel.traces.ingest import ingest
from tracewheel.traces.quarantine import Quarantined
from tracewheel.traces.readers.reading import read_traces

TRACES = Path(__file__).parents[4] / "shared" / "traces"
pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the shared folder of real traces is missing")

# File: format, traces, messages, calls, results, quarantined; by the jq commands of benchmarks/results/formats.md.
COUNTS = {
    "tau_bench/gpt-4o-airline.tasks0-24.json": ("tau_bench", 100, 2962, 621, 621, 0),
    "sweagent/marshmallow-code__marshmallow-1867.traj": ("sweagent", 1, 24, 11, 11, 0),
    "mini_swe_agent/local.traj.json": ("mini_swe_agent", 1, 6, 0, 0, 0),
    "openhands/basic.json": ("openhands", 1, 4, 2, 1, 0),
    "openhands/multi_swe_bench_output.jsonl": ("openhands", 3, 216, 105, 103, 0),
    "harbor_atif/openhands_hello-world.trajectory.json": ("atif", 1, 7, 2, 1, 0),
    "harbor_atif/terminus_2_hello-world-invalid-json.trajectory.json": ("atif", 1, 9, 3, 3, 0),
    "openinference/all-spans.json": ("openinference", 8, 22, 0, 0, 2),
    "langfuse/langgraph-python-2025-08-22.trace.json": ("langfuse", 1, 5, 1, 1, 0),
    "langfuse/openai-agents-2025-09-30.trace.json": ("langfuse", 1, 5, 1, 1, 0),
    "langfuse/pydantic-ai-tools-2025-12-04.trace.json": ("langfuse", 1, 9, 3, 3, 0),
    "langfuse/pydantic-ai-tools-2025-12-04.chatml.json": ("langfuse", 1, 9, 3, 3, 0),
    "langfuse/vercel-aisdk-2025-11-17.trace.json": ("langfuse", 1, 3, 1, 1, 0),
}


def load(name):
    text = (TRACES / name).read_text()
    return [json.loads(line) for line in text.splitlines()] if name.endswith(".jsonl") else json.loads(text)


def read(name):
    items = list(read_traces({name: TRACES / name}))
    return [item for item in items if not isinstance(item, Quarantined)], [
        item for item in items if isinstance(item, Quarantined)
    ]


def counts(traces):
    """Messages, calls and results."""
    messages = [message for trace in traces for message in trace.messages]
    calls = sum(len(message.get("tool_calls") or []) for message in messages)
    return len(messages), calls, sum(message["role"] == "tool" for message in messages)


def test_every_file_of_the_folder_is_in_the_table():
    logs = {path.relative_to(TRACES).as_posix() for path in TRACES.rglob("*") if path.suffix in (".json", ".jsonl", ".traj")}
    assert logs == set(COUNTS)


@pytest.mark.parametrize("name", COUNTS)
def test_counts_of_each_file(name):
    format, expected, *rest, invalid = COUNTS[name]
    traces, quarantined = read(name)
    assert {trace.format for trace in traces} == {format}
    assert (len(traces), *counts(traces), len(quarantined)) == (expected, *rest, invalid)


def test_tau_bench_against_hand_counts():
    runs = load("tau_bench/gpt-4o-airline.tasks0-24.json")
    traces, _ = read("tau_bench/gpt-4o-airline.tasks0-24.json")
    said = [message for run in runs for message in run["traj"]]
    calls = sum(len(message.get("tool_calls") or []) for message in said)
    assert counts(traces) == (len(said), calls, sum(message["role"] == "tool" for message in said))
    assert [trace.messages for trace in traces] == [run["traj"] for run in runs]
    assert [trace.outcome for trace in traces] == [run["reward"] for run in runs]
    assert [trace.info["task"] for trace in traces] == [run["info"]["task"] for run in runs]
    by_task = pandas.Series([trace.task for trace in traces]).value_counts()
    assert (len(by_task), set(by_task)) == (25, {4})
    assert [trace.source_line for trace in traces][:2] == [2, 333]


def test_sweagent_against_hand_counts():
    run = load("sweagent/marshmallow-code__marshmallow-1867.traj")
    ((trace,), _) = read("sweagent/marshmallow-code__marshmallow-1867.traj")
    assert [(m["role"], m["content"]) for m in trace.messages] == [(m["role"], m["content"]) for m in run["history"]]
    called = [call for message in run["history"] for call in message.get("tool_calls") or []]
    assert [call for message in trace.messages for call in message.get("tool_calls") or []] == called
    replied = [message["tool_call_ids"][0] for message in run["history"] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in trace.messages if message["role"] == "tool"] == replied
    assert trace.info["submission"] == run["info"]["submission"]
    assert trace.outcome is None


def test_openhands_against_hand_counts():
    results = load("openhands/multi_swe_bench_output.jsonl")
    traces, _ = read("openhands/multi_swe_bench_output.jsonl")
    seen = [[e for e in run["history"] if "recall" not in (e.get("action"), e.get("observation"))] for run in results]
    assert [len(trace.messages) for trace in traces] == [len(events) for events in seen]
    for trace, events in zip(traces, seen, strict=True):
        named = [event for event in events if "tool_call_metadata" in event]
        called = [event["tool_call_metadata"]["tool_call_id"] for event in named if "action" in event]
        replies = [(event["tool_call_metadata"]["tool_call_id"], event["content"]) for event in named if "observation" in event]
        assert [call["id"] for message in trace.messages for call in message.get("tool_calls") or []] == called
        assert [(m["tool_call_id"], m["content"]) for m in trace.messages if m["role"] == "tool"] == replies
    assert [trace.task for trace in traces] == [run["instance_id"] for run in results]
    assert [len(trace.tools) for trace in traces] == [len(run["history"][0]["args"]["tools"]) for run in results]


def test_embedding_spans_are_quarantined_and_model_calls_read():
    spans = load("openinference/all-spans.json")
    traces, quarantined = read("openinference/all-spans.json")
    answers = [span["attributes"].get("ai.response.text") or span["attributes"].get("ai.response.object") for span in spans]
    assert [trace.messages[-1]["content"] for trace in traces] == [answer for answer in answers if answer]
    unanswered = [span["spanContext"]["traceId"] for span, answer in zip(spans, answers, strict=True) if not answer]
    assert [json.loads(item.raw)["spanContext"]["traceId"] for item in quarantined] == unanswered
    assert {item.reason for item in quarantined} == {"no messages"}


def test_langfuse_agrees_with_its_own_normalisation():
    ((trace,), _) = read("langfuse/pydantic-ai-tools-2025-12-04.trace.json")
    ((normalised,), _) = read("langfuse/pydantic-ai-tools-2025-12-04.chatml.json")

    def called(message):
        functions = [call["function"] for call in message.get("tool_calls") or []]
        return [(function["name"], json.loads(function["arguments"])) for function in functions]

    def told(one):
        return [(message["role"], message["content"] or "", called(message)) for message in one.messages]

    assert told(trace) == told(normalised)
    assert [tool["function"]["name"] for tool in trace.tools] == [tool["function"]["name"] for tool in normalised.tools]


def test_the_whole_folder_ingests_at_once(tmp_path):
    config = IngestConfig(paths=(str(TRACES),), redaction=RedactionConfig(enabled=False))
    report = ingest(config, tmp_path / "out")
    assert report["read"] == sum(row[1] + row[5] for row in COUNTS.values())
    assert report["read"] == report["kept"] + report["duplicates"] + report["quarantined"]
    # The spans of the AI SDK tell each of four conversations twice.
    assert (report["duplicates"], report["quarantined"]) == (4, 2)
    frame = pandas.read_parquet(tmp_path / "out" / "traces.parquet")
    assert len(frame) == report["kept"]
    assert set(report["skipped"]) == {
        path.relative_to(TRACES).as_posix()
        for path in TRACES.rglob("*")
        if path.is_file() and path.relative_to(TRACES).as_posix() not in COUNTS
    }
