"""MLflow: one run per record, nothing logged twice, and a dead server fails within seconds."""

import http.server
import socket
import subprocess
import sys
import threading
import time

import pytest

from tasks.tracking import client as mlflow_client
from tasks.tracking.client import check_tracking, make_client
from tasks.tracking.tracking import Tracking, waiting_runs
from tracewheel.config import TrackingConfig
from tracewheel.core.errors import InfrastructureError
from tracewheel.core.processes import free_port


@pytest.fixture
def serve():
    """Starts a web server with the given answer; returns its address."""
    servers = []

    def start(answer):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                status = answer(self.path)
                self.send_response(status)
                self.end_headers()

            do_POST = do_GET

            def log_message(self, *arguments):
                return None

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_resumed_run_continues_its_mlflow_run(make_run):
    run = make_run(tracked=True)
    client, mlflow_run = make_client(run.config.tracking.uri), run.tracking.mlflow_run
    run.tracking.log_iteration(1, {"reward": 0.5, "success": None})
    with pytest.raises(KeyboardInterrupt), run.tracking.closing():
        raise KeyboardInterrupt
    assert client.get_run(mlflow_run).info.status == "KILLED"
    again = Tracking.open(run.config, run.record)
    assert again.mlflow_run == mlflow_run
    again.log_iteration(1, {"reward": 0.5})
    again.log_iteration(2, {"reward": 0.7})
    history = client.get_metric_history(mlflow_run, "rollout/reward")
    assert [(metric.step, metric.value) for metric in history] == [(1, 0.5), (2, 0.7)]
    with again.closing():
        pass
    found = client.get_run(mlflow_run)
    assert found.info.status == "FINISHED"
    assert found.data.params["learner.kl.weight"] == str(run.config.learner.kl.weight)
    assert "work_dir" not in found.data.params


def test_two_records_are_two_mlflow_runs(make_run, tmp_path):
    first = make_run(tracked=True)
    second = make_run(tracked=True, work_dir=str(tmp_path / "other"))
    assert first.record.run_id == second.record.run_id
    assert first.tracking.mlflow_run != second.tracking.mlflow_run


def test_a_missing_server_is_reported_at_once():
    address = f"http://127.0.0.1:{free_port()}"
    started = time.monotonic()
    with pytest.raises(InfrastructureError, match=f"no MLflow server answers at {address}"):
        check_tracking(address)
    assert time.monotonic() - started < 5


def test_a_server_that_never_answers_times_out(monkeypatch):
    monkeypatch.setattr(mlflow_client, "PROBE_SECONDS", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        started = time.monotonic()
        with pytest.raises(InfrastructureError, match="no MLflow server answers"):
            check_tracking(f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - started < 5


def test_a_server_that_wants_a_password_is_reachable(serve):
    address = serve(lambda path: 401)
    assert check_tracking(address) is None


def test_a_server_that_fails_after_the_probe_is_waited_for_in_bounded_time(make_run, serve):
    run, said = make_run(), []
    address = serve(lambda path: 200 if path == "/health" else 503)
    config = run.config.model_copy(update={"tracking": TrackingConfig(uri=address)})
    started = time.monotonic()
    tracking = Tracking.open(config, run.record, said.append)
    with tracking.closing():
        tracking.log_iteration(1, {"reward": 0.5})
    assert time.monotonic() - started < 30
    assert "MLflow is away" in said[0] and "503" in said[0] and "the run goes on" in said[0]
    assert [text for text in said[1:] if "503" in text] == [], "it is said once"
    assert "waits for MLflow: the next run delivers it" in said[-1]
    assert [waiting.run_id for waiting in waiting_runs(config.work_dir)] == [run.record.run_id]


def test_a_server_that_refuses_ends_the_run_before_it_begins(make_run, serve):
    run = make_run()
    address = serve(lambda path: 200 if path == "/health" else 401)
    config = run.config.model_copy(update={"tracking": TrackingConfig(uri=address)})
    with pytest.raises(InfrastructureError, match="MLflow: .*401"):
        Tracking.open(config, run.record)


FIRST_USE = """
import sys
import mlflow
from tasks.tracking.client import make_client
print("begun", flush=True)
make_client(sys.argv[1])
print("made", flush=True)
"""


def _size_of_databases(folder):
    """Bytes in all; -1 where one was renamed between the listing and the look at its size."""
    try:
        return sum(path.stat().st_size for path in folder.glob("*.db"))
    except FileNotFoundError:
        return -1


def test_a_kill_during_table_creation_leaves_a_usable_store(tmp_path):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    for size in (1, 100_000, 300_000):
        process = subprocess.Popen([sys.executable, "-c", FIRST_USE, uri], stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "begun\n"
        while process.poll() is None and _size_of_databases(tmp_path) < size:
            time.sleep(0.001)
        process.kill()
        assert "made" not in process.stdout.read(), "killed too late to show anything"
        process.wait()
    client = make_client(uri)
    assert client.create_experiment("after the kills")
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]
