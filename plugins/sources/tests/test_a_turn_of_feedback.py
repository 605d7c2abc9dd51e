"""From traces without a reward, where they live, to demonstrations: feedback comes later.

An agent talks to an endpoint by OpenAI's client, instrumented by MLflow's `autolog`. Its traces lie in an MLflow store, where
people and programs assess them afterwards. And what `tracewheel collect` received of real agents, with a file of outcomes.
"""

import json
import random
import threading
from collections import Counter
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import openai
import pandas
import pytest
import yaml

import mlflow
from data.workspace_logs import log_record
from flows.cli import main
from tracewheel.environments.workspace.tasks import FAMILIES, make_task

ROOT = Path(__file__).parents[3]
TASKS, ATTEMPTS = 20, 3
DAY = datetime(2026, 11, 2, 9, tzinfo=UTC)


@pytest.fixture(scope="module")
def talks():
    """What an agent says and does, and whether it was right: attempts at tasks with prompts of their own."""
    rng, tasks = random.Random(5), {}
    while len(tasks) < TASKS:
        task = make_task(FAMILIES[len(tasks) % 4], 2, rng)
        tasks.setdefault(task.prompt, task)
    made = []
    for number in range(TASKS * ATTEMPTS):
        task = list(tasks.values())[number % TASKS]
        record = log_record(task, f"user-{number % TASKS}", f"talk-{number}", DAY, rng)
        while "reward" not in record:
            record = log_record(task, f"user-{number % TASKS}", f"talk-{number}", DAY, rng)
        made.append(record)
    return made


@pytest.fixture(scope="module")
def endpoint(talks):
    """An endpoint of chat completions that says what the agent said then; the model's name is the number of the talk."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            said = talks[int(asked["model"])]["messages"][len(asked["messages"])]
            ended = "tool_calls" if said.get("tool_calls") else "stop"
            choice = {"index": 0, "finish_reason": ended, "message": {"content": None, **said}}
            answer = {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "created": 1,
                "model": asked["model"],
                "choices": [choice],
            }
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


@pytest.fixture
def experiment(talks, endpoint, tmp_path):
    """The store's address, and the trace of each talk."""
    earlier = mlflow.get_tracking_uri()
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("agents")
    mlflow.openai.autolog()
    try:
        with openai.OpenAI(base_url=endpoint, api_key="none", max_retries=0) as client:
            traces = [traced(client, number, talk) for number, talk in enumerate(talks)]
        mlflow.flush_trace_async_logging()
        yield uri, traces
    finally:
        mlflow.openai.autolog(disable=True)
        mlflow.set_tracking_uri(earlier)


def traced(client, number, talk):
    """One conversation as an agent's trace; returns its id."""
    with mlflow.start_span("agent", span_type="AGENT") as root:
        mlflow.update_current_trace(metadata={"mlflow.trace.user": talk["user"], "mlflow.trace.session": talk["session"]})
        for place, message in enumerate(talk["messages"]):
            if message["role"] == "assistant":
                said = talk["messages"][:place]
                client.chat.completions.create(model=str(number), messages=said, tools=talk["tools"])
    return root.trace_id


@pytest.mark.slow
def test_assessments_of_the_day_after_are_the_outcomes_that_mlflows_traces_are_curated_by(experiment, talks, tmp_path, capsys):
    uri, traces = experiment

    def printed(*arguments):
        assert main([str(argument) for argument in (*arguments, "--json")]) == 0
        return json.loads(capsys.readouterr().out)

    address, ingested = f"mlflow:{uri}/agents", tmp_path / "ingested"
    first = printed("ingest", address, "--out", ingested)
    assert (first["kept"], first["quarantined"], first.get("outcomes")) == (len(talks), 0, None)
    rows = pandas.read_parquet(ingested / "traces.parquet")
    assert rows["outcome"].isna().all() and set(rows["tools"].map(json.loads).map(json.dumps)) == {
        json.dumps(talks[0]["tools"])
    }

    person = mlflow.entities.AssessmentSource(source_type="HUMAN", source_id="ada")
    said = {}
    for number, (trace, talk) in enumerate(zip(traces, talks, strict=True)):
        if number % 10 == 9:
            continue  # of every tenth nobody says anything
        by_hand = {"name": "success", "value": talk["reward"] == 1.0, "source": person}
        by_program = {"name": "reward", "value": talk["reward"]}
        mlflow.log_feedback(trace_id=trace, **(by_hand if number % 2 else by_program))
        said[trace] = talk["reward"]
    report = printed("ingest", address, "--out", ingested)
    kinds = {"logged": 0, "verified": 30, "label": 24, "without an outcome": 6}
    assert (report["kept"], report["outcomes"]["known"]) == (len(talks), kinds)
    rows = pandas.read_parquet(ingested / "traces.parquet").set_index("id")["outcome"]
    assert rows.dropna().to_dict() == said

    printed("data", "record", ingested, "--out", tmp_path / "recorded")
    profile = tmp_path / "profile.yaml"
    values = yaml.safe_load((ROOT / "configs/tiny-short.yaml").read_text())
    sizes = {"train_tasks": 6, "validation_tasks": 2, "held_out_tasks": 6, "harder_tasks": 0}
    values |= {
        "ingest": {"paths": [address]},
        "environment": {"kind": f"recorded:{tmp_path / 'recorded'}"},
        "curation": sizes | {"sets": {"sources": ["logged"]}},
    }
    profile.write_text(yaml.safe_dump(values))
    curated = tmp_path / "curated"
    printed("curate", profile, "--traces", ingested, "--out", curated)
    episodes = pandas.read_parquet(curated / "episodes.parquet")
    labelled = episodes[episodes["outcome_source"] == "logged"]
    assert dict(zip(labelled["trace_id"], labelled["label"], strict=True)) == {
        name: said[name] for name in episodes["trace_id"] if name in said
    }
    sets = {name: pandas.read_parquet(curated / f"sets/{name}.parquet") for name in ("demonstrations", "preference_pairs")}
    shown = [*sets["demonstrations"]["trace_id"], *sets["preference_pairs"]["chosen_trace"]]
    assert shown and {said[name] for name in shown} == {1.0}
    assert {said[name] for name in sets["preference_pairs"]["rejected_trace"]} <= {0.0}
    plan = printed("retrain", profile, "--run-dir", tmp_path / "runs", "--dry-run")
    assert any("warm_start" in json.dumps(stage) for stage in plan["stages"])


def test_what_was_received_of_real_agents_takes_outcomes_by_trace_and_by_session(tmp_path, capsys):
    received = Path(__file__).with_name("received.jsonl")
    arguments = ["ingest", str(received), "--out", str(tmp_path / "out"), "--json"]
    assert main(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    rows = pandas.read_parquet(tmp_path / "out/traces.parquet").to_dict("records")
    assert first["kept"] == len(rows) == 9 and not any(row["outcome"] == row["outcome"] and row["outcome"] for row in rows)
    by_id, by_session = (next(row for row in rows if (row["session"] == "sess-1") == named) for named in (False, True))
    of_session = [row["id"] for row in rows if row["session"] == by_session["session"]]
    (tmp_path / "said.jsonl").write_text(
        json.dumps({"trace_id": by_id["id"], "value": 1, "kind": "verified"})
        + "\n"
        + json.dumps({"session_id": by_session["session"], "thumb": "down"})
        + "\n"
        + json.dumps({"trace_id": "0" * 32, "value": 1})
        + "\n"
    )
    assert main([*arguments, "--outcomes", str(tmp_path / "said.jsonl")]) == 0
    outcomes = json.loads(capsys.readouterr().out)["outcomes"]
    assert (outcomes["said"], outcomes["traces"], outcomes["waiting"]) == (3, 2, 1)
    found = {row["id"]: row["outcome"] for row in pandas.read_parquet(tmp_path / "out/traces.parquet").to_dict("records")}
    known = {name: outcome for name, outcome in found.items() if outcome == outcome and outcome is not None}
    assert known.pop(by_id["id"]) == 1.0
    ((latest, outcome),) = known.items()
    assert latest in of_session and outcome == 0.0
    assert Counter(outcomes["known"]) == Counter({"verified": 1, "label": 1, "without an outcome": 7})
