"""MLflow's traces, read from a real tracking store."""

import json

import pytest

import mlflow
from tasks.tracking.mlflow_traces import write_traces
from tracewheel.core.errors import DataError
from tracewheel.traces.readers.reading import read_traces

CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
CHAT = [
    {"role": "user", "content": "Weather in Rome?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
    {"role": "assistant", "content": "It is sunny."},
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A tracking store with two traces of an agent, the second for another user."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"
    earlier = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("agents")
    try:
        for user in ("ada", "bob"):
            with mlflow.start_span("agent", span_type="AGENT") as root:
                mlflow.update_current_trace(
                    metadata={"mlflow.trace.user": user, "mlflow.trace.session": f"{user}-1"}, tags={"who": user}
                )
                for end in (1, 3):
                    with mlflow.start_span("chat", span_type="CHAT_MODEL") as span:
                        span.set_inputs({"model": "m", "messages": CHAT[:end]})
                        span.set_outputs({"choices": [{"message": CHAT[end]}]})
                    if end == 1:
                        with mlflow.start_span("weather", span_type="TOOL") as tool:
                            tool.set_outputs("sunny")
                root.set_outputs("done")
            mlflow.flush_trace_async_logging()
            mlflow.log_feedback(trace_id=root.trace_id, name="reward", value=1.0 if user == "ada" else 0.0)
    finally:
        mlflow.set_tracking_uri(earlier)
    return uri


def test_traces_read_back_equal_those_logged(store, tmp_path):
    file = tmp_path / "traces.jsonl"
    assert write_traces(file, store, "agents") == 2
    traces = list(read_traces({"mlflow": file}))
    assert [trace.format for trace in traces] == ["mlflow", "mlflow"]
    assert [trace.user for trace in traces] == ["ada", "bob"]
    assert [trace.session for trace in traces] == ["ada-1", "bob-1"]
    assert [trace.outcome for trace in traces] == [1.0, 0.0]
    for trace in traces:
        assert trace.messages == CHAT
        assert trace.model == "m"


def test_a_filter_selects_traces(store, tmp_path):
    file = tmp_path / "traces.jsonl"
    assert write_traces(file, store, "agents", "tags.who = 'bob'") == 1
    assert json.loads(file.read_text())["info"]["tags"]["who"] == "bob"


@pytest.mark.parametrize(
    ("experiment", "filter", "message"),
    [("nowhere", None, "no such experiment"), ("agents", "who is it", "--filter who is it")],
)
def test_an_unreadable_store_is_named(store, tmp_path, experiment, filter, message):
    with pytest.raises(DataError, match=message):
        write_traces(tmp_path / "traces.jsonl", store, experiment, filter)


def test_the_command_reads_from_the_store(store, tmp_path, capsys):
    from flows.cli import main

    arguments = ["ingest", "--mlflow-uri", store, "--experiment", "agents", "--out", str(tmp_path / "out"), "--json"]
    for expected in ((2, 0), (0, 2)):
        assert main(arguments) == 0
        added = json.loads(capsys.readouterr().out)["added"]
        assert (added["kept"], added["duplicates"]) == expected
    state = json.loads((tmp_path / "out/state.json").read_text())
    assert state["files"] == {}
