"""A judge's score from a log through ingest, replay and labels, and never into a demonstration."""

import copy
import json
from pathlib import Path

import pandas

from tracewheel.config import IngestConfig, RetrainConfig
from tracewheel.core.types import Trace
from tracewheel.curation.curate import curate
from tracewheel.environments.recorded.build import build_recording
from tracewheel.traces.ingest import ingest
from tracewheel.traces.readers.reading import read_traces

LOGS = Path(__file__).parents[3] / "data/traces/workspace.jsonl"
FEW = {"train_tasks": 4, "validation_tasks": 2, "held_out_tasks": 2, "harder_tasks": 1}


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
