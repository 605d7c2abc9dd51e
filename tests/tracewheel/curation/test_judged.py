"""A judge's score from a log through ingest, replay and labels, and never into a demonstration."""

import copy
import json
from pathlib import Path

import pandas
import pytest

from tracewheel.config import IngestConfig, RetrainConfig
from tracewheel.core.types import Trace
from tracewheel.curation.curate import curate
from tracewheel.environments.recorded.build import build_recording
from tracewheel.environments.recorded.traces import recorded_traces
from tracewheel.traces.ingest import ingest
from tracewheel.traces.readers.reading import read_traces

LOGS = Path(__file__).parents[3] / "data/traces/workspace.jsonl"
FEW = {"train_tasks": 4, "validation_tasks": 2, "held_out_tasks": 2, "harder_tasks": 1}
ITEMS = ["tea", "salt", "rope", "ink", "wax", "oil", "soap", "rice", "wine", "nails"]
TOOL = {"name": "stock", "parameters": {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}}


def curated(folder, logs, kind, curation):
    (folder / "logs.jsonl").write_text("".join(json.dumps(log) + "\n" for log in logs))
    report = ingest(IngestConfig(paths=(str(folder / "logs.jsonl"),)), folder / "ingested")
    assert report["kept"] > 0.9 * len(logs) and report["quarantined"] == 0
    if kind is None:
        build_recording(pandas.read_parquet(folder / "ingested/traces.parquet"), folder / "recording")
        kind = f"recorded:{folder / 'recording'}"
    config = {"name": "test", "environment": {"kind": kind}, "curation": curation}
    report = curate(RetrainConfig.model_validate(config), folder / "ingested", folder / "curated")
    return report, pandas.read_parquet(folder / "curated/episodes.parquet").set_index("trace_id")


def langfuse(identity, item, calls, *scores):
    """An export of a conversation in which the agent looks for things in stock."""
    messages = [{"role": "user", "content": f"Have you any {item}?"}]
    for number, wanted in enumerate(calls):
        function = {"name": "stock", "arguments": json.dumps({"item": wanted})}
        messages.append({"role": "assistant", "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": "3"})
    call = {"id": f"{identity}-1", "type": "GENERATION", "model": "m", "output": {"role": "assistant", "content": "Yes."}}
    call["input"] = {"messages": messages, "tools": [{"type": "function", "function": TOOL}]}
    return {"trace": {"id": identity, "scores": list(scores)}, "observations": [call]}


def score(name, value, source):
    return {"name": name, "value": value, "source": source, "dataType": "NUMERIC"}


def test_a_judged_trace_of_langfuse_is_labelled_so(tmp_path):
    logs = []
    for number, item in enumerate(ITEMS):
        calls = [item, f"old {item}"][: 1 + number % 2]
        logs.append(langfuse(f"{item}-win", item, calls, score("reward", 1, "API")))
        logs.append(
            langfuse(f"{item}-model", item, [*calls, item], score("correctness", 0, "EVAL"), score("toxicity", 1, "EVAL"))
        )
        logs.append(langfuse(f"{item}-person", item, [*calls, *calls, item], score("success", 1, "ANNOTATION")))
        logs.append(
            langfuse(f"{item}-both", item, [*calls, item, item, item], score("success", 1, "EVAL"), score("reward", 0, "API"))
        )
    curation = {"train_tasks": 2, "validation_tasks": 1, "held_out_tasks": 1, "harder_tasks": 1, "harder_tier": 2}
    curation |= {"min_attempts": 1, "duplicates": {"link": []}}
    report, episodes = curated(tmp_path, logs, None, curation)
    kind = episodes.index.str.extract(r"-(\w+)-turn0$", expand=False)
    found = set(zip(kind, episodes["outcome_source"], episodes["label"], strict=True))
    assert found == {("win", "logged", 1.0), ("both", "logged", 0.0), ("model", "judged", 0.0), ("person", "judged", 1.0)}
    assert report["labels"]["outcomes"] == {"verified": 0, "logged": 10, "judged": 10, "unknown": 0}
    assert pandas.read_parquet(tmp_path / "curated/sets/demonstrations.parquet").empty


@pytest.mark.parametrize(("words", "judged"), [(1, [1.0]), (2, [None, None])])
def test_a_judgement_of_several_turns_is_not_used(tmp_path, words, judged):
    log = langfuse("t", "tea", ["tea"], score("success", 1, "EVAL"))
    (call,) = log["observations"]
    asked = call["input"]["messages"]
    call["input"]["messages"] = asked + [{"role": "assistant", "content": "Yes."}, *asked] * (words - 1)
    (tmp_path / "log.jsonl").write_text(json.dumps(log))
    ingest(IngestConfig(paths=(str(tmp_path / "log.jsonl"),)), tmp_path / "ingested")
    traces = pandas.read_parquet(tmp_path / "ingested/traces.parquet")
    assert json.loads(traces["info"][0])["judged"] == 1.0
    turns = recorded_traces(traces, "recorded:somewhere", success={"t": 1.0})
    assert [json.loads(info).get("judged") for info in turns["info"]] == judged


def test_replay_takes_precedence_over_a_judge(tmp_path):
    """Shipped logs with a judge's opinion instead of rewards. In every second trace a tool's reply is altered."""
    logs, changed = [], set()
    traces = (item for item in read_traces({"log": LOGS}) if isinstance(item, Trace) and item.environment)
    for number, trace in enumerate(traces):
        messages = copy.deepcopy(trace.messages)
        replies = [message for message in messages if message["role"] == "tool"]
        if number % 2 and replies:
            replies[0]["content"] += "!"
            changed.add(f"chat-{number}")
        kept = {"user": trace.user, "session": trace.session, "tools": trace.tools, "environment": trace.environment}
        logs.append({"id": f"chat-{number}", "messages": messages, "judged": 1, **kept})
    _, episodes = curated(tmp_path, logs, "workspace", FEW)
    drifted = episodes.index.isin(changed)
    assert drifted.any() and not drifted.all()
    assert set(episodes.loc[drifted, "outcome_source"]) == {"judged"} and set(episodes.loc[drifted, "label"]) == {1.0}
    assert episodes.loc[drifted, "success"].isna().all(), "a judge's score is no success of the task"
    assert set(episodes.loc[~drifted, "outcome_source"]) == {"verified"} and set(episodes.loc[~drifted, "label"]) == {0.0, 1.0}
    demonstrations = pandas.read_parquet(tmp_path / "curated/sets/demonstrations.parquet")
    assert len(demonstrations) and not demonstrations["trace_id"].isin(changed).any()
    counted = pandas.read_parquet(tmp_path / "curated/counted.parquet")
    assert len(counted) and not counted["trace_id"].isin(changed).any()
