"""A judge's score from Langfuse through ingest, replay and labels, and never into a demonstration."""

import json

import pandas
import pytest

from tests.tracewheel.curation.test_judged import curated
from tracewheel.config import IngestConfig
from tracewheel.environments.recorded.traces import recorded_episodes
from tracewheel.traces.ingest import ingest

ITEMS = ["tea", "salt", "rope", "ink", "wax", "oil", "soap", "rice", "wine", "nails"]
TOOL = {"name": "stock", "parameters": {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}}


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
    turns = recorded_episodes(traces, "recorded:somewhere", success={"t": 1.0})[0]
    assert [json.loads(info).get("judged") for info in turns["info"]] == judged
