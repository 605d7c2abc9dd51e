"""Real servers, killed in the middle of a real run: the run ends well, and nothing is lost or logged twice."""

import json
import os
import subprocess
import sys
import time
import urllib.request

import pytest

from tracewheel.core.fingerprint import digest_of
from tracewheel.core.processes import free_port

PATIENCE = 300
pytestmark = pytest.mark.slow


class Server:
    """A server as a process, which `kill` ends at once and `start` begins again on the same port."""

    def __init__(self, arguments, health, folder, environment=None):
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._arguments = [sys.executable, "-m", *arguments, "--host", "127.0.0.1", "--port", str(self.port)]
        self._health, self._folder, self._environment = health, folder, {**os.environ, **(environment or {})}
        self._process = None

    def start(self):
        with open(self._folder / "server.log", "a") as log:
            self._process = subprocess.Popen(
                self._arguments, cwd=self._folder, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.uri}{self._health}", timeout=5):
                    return self
            except OSError:
                time.sleep(0.5)
        raise AssertionError((self._folder / "server.log").read_text())

    def kill(self):
        if self._process and self._process.poll() is None:
            os.killpg(self._process.pid, 9)
            self._process.wait()


@pytest.fixture
def mlflow_server(tmp_path):
    folder = tmp_path / "mlflow"
    folder.mkdir()
    stores = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts")]
    server = Server(["mlflow", "server", *stores, "--workers", "1"], "/health", folder)
    yield server
    server.kill()


@pytest.fixture
def prefect_server(tmp_path):
    folder = tmp_path / "prefect"
    folder.mkdir()
    home = {"PREFECT_HOME": str(folder), "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
    server = Server(["prefect", "server", "start"], "/api/health", folder, home)
    yield server
    server.kill()


def wait_for(pattern, folder, process, log):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        if list((folder / "store").glob(pattern)):
            return
        time.sleep(0.2)
    raise AssertionError(log.read_text())


def adapter_of(folder, run_id):
    return digest_of(folder / run_id / "adapter")


def test_mlflow_killed_in_mid_run_costs_nothing_and_gets_everything_later(
    finished, profile, mlflow_server, spawn, command, tmp_path
):
    whole, _, summary = finished
    folder, log = tmp_path / "runs", tmp_path / "retrain.log"
    mlflow_server.start()
    tracking = ["--set", f"tracking.uri={mlflow_server.uri}"]
    process = spawn("retrain", profile, "--run-dir", folder, *tracking, log=log)
    wait_for("rollout-*", folder, process, log)
    mlflow_server.kill()
    assert process.wait(timeout=900) in (0, 3), log.read_text()
    said = " ".join(log.read_text().split())
    assert "and the run goes on" in said and "the next run delivers it" in said
    assert "Traceback" not in said
    (record,) = [path.parent for path in folder.glob("*/summary.json")]
    here = json.loads((record / "summary.json").read_text())
    assert here["model_version"] == "waiting" and here["mlflow_waiting"] > 0
    assert adapter_of(folder, record.name) == adapter_of(whole, summary["run_id"])
    status = json.loads(command("runs", "status", profile, "--run-dir", folder, *tracking, "--json").stdout)
    assert status["waiting"] >= here["mlflow_waiting"]
    refused = command("runs", "sync", profile, "--run-dir", folder, *tracking)
    assert refused.returncode == 1 and "still wait for MLflow" in refused.stderr
    mlflow_server.start()
    done = command("runs", "sync", profile, "--run-dir", folder, *tracking, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["waiting"] == 0
    here = json.loads((record / "summary.json").read_text())
    assert here["model_version"] == "1" and here["mlflow_run"] and here["mlflow_waiting"] == 0
    import mlflow

    client = mlflow.MlflowClient(mlflow_server.uri)
    (experiment,) = [found for found in client.search_experiments() if found.name == "tracewheel"]
    (found,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(found.info.run_id, "rollout/reward")
    assert [metric.step for metric in history] == [1, 2]
    assert found.info.status == "FINISHED" and found.data.metrics["gate/difference"] == here["gate"]["difference"]
    assert {item.path for item in client.list_artifacts(found.info.run_id)} >= {"adapters", "report.html", "data"}


def test_prefect_killed_in_mid_run_costs_nothing(finished, profile, prefect_server, environment, tmp_path):
    whole, _, summary = finished
    folder, log = tmp_path / "runs", tmp_path / "retrain.log"
    prefect_server.start()
    with open(log, "w") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "flows.cli", "retrain", str(profile), "--run-dir", str(folder)],
            env=environment | {"PREFECT_API_URL": f"{prefect_server.uri}/api"},
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_for("rollout-*", folder, process, log)
        prefect_server.kill()
        assert process.wait(timeout=900) in (0, 3), log.read_text()
    finally:
        process.kill()
    assert "Prefect's server does not answer" in " ".join(log.read_text().split())
    (record,) = [path.parent for path in folder.glob("*/summary.json")]
    assert adapter_of(folder, record.name) == adapter_of(whole, summary["run_id"])


def test_prefect_away_from_the_start_costs_nothing(finished, profile, environment, tmp_path):
    whole, _, summary = finished
    folder = tmp_path / "runs"
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "retrain", str(profile), "--run-dir", str(folder), "--json"],
        env=environment | {"PREFECT_API_URL": f"http://127.0.0.1:{free_port()}/api"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode in (0, 3), done.stderr
    assert "Prefect's server does not answer: the run goes on without it" in done.stderr
    assert adapter_of(folder, json.loads(done.stdout)["run_id"]) == adapter_of(whole, summary["run_id"])
