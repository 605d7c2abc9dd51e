"""From the log of a proxy to training sets: the requests of real conversations, in disorder, as a proxy writes them."""

import json
import random

import pandas
import pytest

from flows.cli import main
from plugins.logs.tests.test_logs_alone import AIRLINE
from tracewheel.traces.readers.reading import read_traces

pytestmark = pytest.mark.skipif(not AIRLINE.exists(), reason="the shared traces are not beside the checkout")


TASKS = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}


def requests_of(trace, tools):
    """What LiteLLM's proxy logs of a conversation: a record for each of the agent's turns; the last has the reward."""
    turns = [position for position, message in enumerate(trace.messages) if message["role"] == "assistant"]
    for position in turns:
        answer = {key: value for key, value in trace.messages[position].items() if value is not None}
        choices = [{"index": 0, "finish_reason": "stop", "message": answer}]
        record = {
            "id": f"chatcmpl-{trace.id}-{position}", "call_type": "acompletion", "status": "success", "model": "gpt-4o",
            "startTime": 1790000000 + position, "end_user": trace.user, "trace_id": f"{trace.id}-{position}",
            "messages": trace.messages[:position], "response": {"object": "chat.completion", "choices": choices},
            "model_parameters": {"tools": tools}, "task": trace.task,
        }  # fmt: skip
        yield {**record, "reward": trace.outcome} if position == turns[-1] else record


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """The conversations, and the folder that their proxy's log was ingested to, in two files."""
    folder = tmp_path_factory.mktemp("proxy")
    traces = list(read_traces({"airline": AIRLINE}))
    tools = {tool["function"]["name"]: tool for trace in traces for tool in trace.tools}
    traces = [trace for trace in traces if trace.task in TASKS]
    records = [record for trace in traces for record in requests_of(trace, list(tools.values()))]
    random.Random(0).shuffle(records)
    for number in range(2):
        lines = [json.dumps(record) + "\n" for record in records[number::2]]
        (folder / f"proxy-{number}.jsonl").write_text("".join(lines))
    assert (
        main(
            [
                "ingest",
                *map(str, folder.glob("*.jsonl")),
                "--out",
                str(folder / "ingested"),
                "--set",
                "ingest.redaction.enabled=false",
            ]
        )
        == 0
    )
    return traces, folder


def said(messages):
    """A conversation up to the agent's last turn: nothing after it is sent to a model."""
    kept = [
        [message["role"], message["content"] or "", [call["function"] for call in message.get("tool_calls") or []]]
        for message in messages
    ]
    end = max(position for position, one in enumerate(kept) if one[0] == "assistant")
    return json.dumps(kept[: end + 1], sort_keys=True)


def test_a_proxys_log_gives_the_conversations_that_passed_it(logged):
    traces, folder = logged
    stored = pandas.read_parquet(folder / "ingested/traces.parquet")
    assert sorted(map(said, map(json.loads, stored["messages"]))) == sorted(said(trace.messages) for trace in traces)
    assert stored["outcome"].sum() == sum(trace.outcome for trace in traces)
    assert set(stored["task"]) == {trace.task for trace in traces}


def test_it_becomes_demonstrations_and_preference_pairs(logged):
    _, folder = logged
    assert main(["data", "record", str(folder / "ingested"), "--out", str(folder / "recorded")]) == 0
    environment, curation = {"kind": f"recorded:{folder / 'recorded'}"}, {"sets": {"sources": ["logged"]}}
    profile = {"name": "proxy", "environment": environment, "curation": curation}
    (folder / "profile.yaml").write_text(json.dumps(profile))
    command = ["curate", str(folder / "profile.yaml"), "--traces", str(folder / "ingested"), "--out", str(folder / "curated")]
    assert main(command) == 0
    sets = {
        name: pandas.read_parquet(folder / f"curated/sets/{name}.parquet") for name in ("demonstrations", "preference_pairs")
    }
    assert {name: len(rows) for name, rows in sets.items()} == {"demonstrations": 3, "preference_pairs": 6}
