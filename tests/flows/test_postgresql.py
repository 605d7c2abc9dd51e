"""Prefect and MLflow on a real PostgreSQL: a run's states and its registry are in the databases."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from tracewheel.core.processes import free_port

pytestmark = pytest.mark.slow
PATIENCE = 300


def program(name):
    """A program of PostgreSQL, which Debian keeps out of the path."""
    found = shutil.which(name) or next(map(str, sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)), None)
    return found or pytest.skip(f"PostgreSQL's {name} is not installed")


@pytest.fixture(scope="module")
def postgresql():
    """A PostgreSQL server with the databases `prefect` and `mlflow`: its port, and a way to ask."""
    initdb, postgres, psql = program("initdb"), program("postgres"), program("psql")
    user = None
    if os.getuid() == 0:  # it refuses to run as root
        names = {entry.pw_name for entry in pwd.getpwall()}
        user = "postgres" if "postgres" in names else "nobody"
    folder, port = Path(tempfile.mkdtemp(prefix="tracewheel-pg-")), free_port()
    if user:
        shutil.chown(folder, user)
    quiet = {"cwd": folder, "stdout": subprocess.DEVNULL, "user": user}
    subprocess.run([initdb, "-D", folder / "data", "-U", "tracewheel", "-A", "trust", "--no-sync"], check=True, **quiet)
    command = [postgres, "-D", folder / "data", "-p", str(port), "-h", "127.0.0.1", "-k", folder, "-c", "fsync=off"]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, **quiet)

    def ask(database, query):
        shown = [psql, "-h", "127.0.0.1", "-p", str(port), "-U", "tracewheel", "-d", database, "-tAc", query]
        return subprocess.run(shown, capture_output=True, text=True)

    deadline = time.monotonic() + PATIENCE
    while ask("postgres", "select 1").returncode and time.monotonic() < deadline:
        time.sleep(0.2)
    for name in ("prefect", "mlflow"):
        made = ask("postgres", f"create database {name}")
        assert made.returncode == 0, made.stderr
    yield port, ask
    server.send_signal(signal.SIGINT)  # its fast end: SIGTERM waits for the clients
    server.wait(timeout=60)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def mlflow_server(postgresql, environment, tmp_path_factory):
    """`mlflow server` on the database; its driver is installed beside, as a server's own image would have it."""
    port, _ = postgresql
    folder, own = tmp_path_factory.mktemp("mlflow"), free_port()
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", folder / "driver", "psycopg2-binary"]
    if (done := subprocess.run(pip, capture_output=True, text=True)).returncode:
        pytest.skip(f"the registry has no psycopg2-binary: {done.stderr[-200:]}")
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(own), "--workers", "1"]
    command += ["--backend-store-uri", f"postgresql://tracewheel@127.0.0.1:{port}/mlflow"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    log = (folder / "log").open("w")
    settings = environment | {"PYTHONPATH": f"{folder}/driver:{environment['PYTHONPATH']}", "MLFLOW_DISABLE_TELEMETRY": "true"}
    server = subprocess.Popen(command, env=settings, stdout=log, stderr=subprocess.STDOUT, cwd=folder)
    address, deadline = f"http://127.0.0.1:{own}", time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=5):
            break
        assert time.monotonic() < deadline and server.poll() is None, (folder / "log").read_text()
        time.sleep(0.5)
    yield address
    for process in [*psutil.Process(server.pid).children(recursive=True), psutil.Process(server.pid)]:
        process.kill()
    server.wait()


def test_a_run_on_postgresql(postgresql, mlflow_server, start_server, finished, profile, tmp_path):
    port, ask = postgresql
    url = f"postgresql+asyncpg://tracewheel@127.0.0.1:{port}/prefect"
    prefect = start_server(PREFECT_SERVER_DATABASE_CONNECTION_URL=url)
    whole, _, summary = finished
    shutil.copytree(whole / "store", tmp_path / "runs" / "store")  # what is tested is what the databases get
    arguments = ["--run-dir", tmp_path / "runs", "--set", f"tracking.uri={mlflow_server}", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "retrain", str(profile), *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        env=prefect.environment | {"PREFECT_API_URL": prefect.url},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode in (0, 3), done.stderr
    assert ask("prefect", "select state_type from flow_run").stdout.split() == ["COMPLETED"]
    assert int(ask("prefect", "select count(*) from task_run where state_type = 'COMPLETED'").stdout) > 5
    (status,) = ask("mlflow", "select status from runs").stdout.split()
    assert status == "FINISHED"
    assert int(ask("mlflow", "select count(*) from metrics").stdout) > 20
    assert f'"run_id": "{summary["run_id"]}"' in done.stdout
    assert ask("mlflow", "select count(*) from model_versions").stdout.strip() == "1"
    champions = ask("mlflow", "select count(*) from registered_model_aliases where alias = 'champion'").stdout.strip()
    assert champions == ("1" if done.returncode == 0 else "0")
