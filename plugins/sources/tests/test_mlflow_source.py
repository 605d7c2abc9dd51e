"""MLflow's traces, from a real tracking store and from MLflow's own server."""

import json
import os
import subprocess
import sys
import time

import httpx
import pandas
import pytest

import mlflow
from flows.cli import main
from tracewheel.core.errors import ConfigError, InfrastructureError
from tracewheel.traces.readers.reading import read_traces
from tracewheel.traces.sources import fetch_new, located

CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
CHAT = [
    {"role": "user", "content": "Weather in Rome?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    {"role": "assistant", "content": "It is sunny."},
]


def log_trace(user, reward=None):
    """A trace of an agent in the present experiment; returns its id."""
    with mlflow.start_span("agent", span_type="AGENT") as root:
        about = {"mlflow.trace.user": user, "mlflow.trace.session": f"{user}-1"}
        mlflow.update_current_trace(metadata=about, tags={"who": user})
        for end in (1, 3):
            with mlflow.start_span("chat", span_type="CHAT_MODEL") as span:
                span.set_inputs({"model": "m", "messages": CHAT[:end]})
                span.set_outputs({"choices": [{"message": CHAT[end]}]})
            if end == 1:
                with mlflow.start_span("weather", span_type="TOOL") as tool:
                    tool.set_outputs("sunny")
        root.set_outputs("done")
    mlflow.flush_trace_async_logging()
    if reward is not None:
        mlflow.log_feedback(trace_id=root.trace_id, name="reward", value=reward)
    return root.trace_id


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """An empty store; making its tables takes seconds."""
    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    mlflow.MlflowClient(f"sqlite:///{file}").create_experiment("empty")
    return file


@pytest.fixture
def store(base, tmp_path):
    """A tracking store with two traces of an agent, the second for another user."""
    (tmp_path / "mlflow.db").write_bytes(base.read_bytes())
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    earlier = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("agents")
    log_trace("ada", 1.0)
    log_trace("bob", 0.0)
    yield uri
    mlflow.set_tracking_uri(earlier)


def fetch(address, tmp_path):
    paths = located([address], tmp_path / "sources")
    return fetch_new(paths)[0], sorted((tmp_path / "sources").rglob("*.jsonl"))


def test_traces_read_back_equal_those_logged(store, tmp_path):
    found, files = fetch(f"mlflow:{store}/agents", tmp_path)
    assert (found.files, found.lines) == (1, 2)
    traces = list(read_traces({"mlflow": files[0]}))
    assert [trace.format for trace in traces] == ["mlflow", "mlflow"]
    assert [trace.user for trace in traces] == ["ada", "bob"]
    assert [trace.session for trace in traces] == ["ada-1", "bob-1"]
    assert [trace.outcome for trace in traces] == [1.0, 0.0]
    for trace in traces:
        assert trace.messages == CHAT
        assert trace.model == "m"


def test_only_what_is_new_is_fetched_and_a_trace_whose_assessments_have_changed(store, tmp_path):
    address = f"mlflow:{store}/agents"
    fetch(address, tmp_path)
    assert fetch(address, tmp_path)[0].lines == 0
    later = log_trace("eve")
    found, files = fetch(address, tmp_path)
    assert (found.lines, len(files)) == (1, 2)
    mlflow.log_feedback(trace_id=later, name="reward", value=1.0)
    found, files = fetch(address, tmp_path)
    assert (found.lines, len(files)) == (1, 3)
    again = [trace for trace in read_traces({"mlflow": files[-1], "other": files[-2]}) if trace.outcome == 1.0]
    assert [trace.user for trace in again] == ["eve"]


def test_pages_are_committed_one_by_one(store, tmp_path, monkeypatch):
    monkeypatch.setattr("tracewheel_sources.mlflow_traces.PAGE", 1)
    found, files = fetch(f"mlflow:{store}/agents", tmp_path)
    assert (found.files, len(files)) == (2, 2)


def test_a_filter_selects_traces(store, tmp_path):
    _, (file,) = fetch(f"mlflow:{store}/agents?filter=tags.who %3D 'bob'", tmp_path)
    assert json.loads(file.read_text())["info"]["tags"]["who"] == "bob"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("mlflow:STORE/nowhere", "has no experiment 'nowhere'"),
        ("mlflow:STORE/agents?filter=who is it", "experiment 'agents': "),
        ("mlflow:STORE/agents?days=never", "'days' is a number"),
        ("mlflow:agents", "set MLFLOW_TRACKING_URI"),
        ("mlflow:", "name an experiment"),
    ],
)
def test_an_unreadable_store_is_named(store, tmp_path, monkeypatch, address, message):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(ConfigError, match=message):
        fetch(address.replace("STORE", store), tmp_path)


def test_the_command_reads_from_the_store(store, tmp_path, capsys):
    arguments = ["ingest", f"mlflow:{store}/agents", "--out", str(tmp_path / "out"), "--json"]
    for expected in ((2, 0), (0, 0)):
        assert main(arguments) == 0
        added = json.loads(capsys.readouterr().out)["added"]
        assert (added["kept"], added["duplicates"]) == expected


def test_later_assessments_become_the_outcome_of_the_trace_that_is_stored(store, tmp_path, capsys):
    arguments = ["ingest", f"mlflow:{store}/agents", "--out", str(tmp_path / "out"), "--json"]
    programs, people = log_trace("eve"), log_trace("kim")
    assert main(arguments) == 0
    mlflow.log_feedback(trace_id=programs, name="reward", value=1.0)
    by_hand = mlflow.entities.AssessmentSource(source_type="HUMAN", source_id="ada")
    mlflow.log_feedback(trace_id=people, name="success", value=False, source=by_hand)
    assert main(arguments) == 0
    capsys.readouterr()
    rows = pandas.read_parquet(tmp_path / "out/traces.parquet").to_dict("records")
    assert {row["user"]: row["outcome"] for row in rows} == {"ada": 1.0, "bob": 0.0, "eve": 1.0, "kim": 0.0}


@pytest.fixture
def server(store):
    """MLflow's own server over the store."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", store, "--port", str(port), "--workers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                if httpx.get(f"{url}/health").status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(0.2)
        yield url
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


@pytest.mark.slow
def test_mlflows_own_server_is_read_over_http(server, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    arguments = ["ingest", "mlflow:agents", "--out", str(tmp_path / "out"), "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["kept"] == 2
    rows = pandas.read_parquet(tmp_path / "out/traces.parquet").to_dict("records")
    assert [row["outcome"] for row in rows] == [1.0, 0.0]
    assert main([*arguments, "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["sources"][0]["lines"] == 0


def test_a_server_that_is_away_is_named_in_time(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    with pytest.raises(InfrastructureError, match=r"mlflow:http://127.0.0.1:9: does not answer"):
        fetch("mlflow:http://127.0.0.1:9/agents", tmp_path)
