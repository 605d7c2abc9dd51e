"""How runs end when they are told to, or killed: real processes, real signals, the server's own database."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
SECONDS = 30


def flow_runs(folder):
    """State type, name and message of each flow run that has begun, from Prefect's database."""
    query = """select run.state_type, run.state_name, state.message from flow_run run
               join flow_run_state state on state.id = run.state_id where run.state_type != 'SCHEDULED'"""
    with sqlite3.connect(folder / ".prefect" / "prefect.db") as connection:
        return connection.execute(query).fetchall()


def flow_run_states(folder):
    with contextlib.suppress(sqlite3.OperationalError), sqlite3.connect(folder / ".prefect" / "prefect.db") as connection:
        return [row[0] for row in connection.execute("select state_type from flow_run where state_type != 'SCHEDULED'")]


def state_of(folder):
    (path,) = folder.glob("*/state.json")
    return json.loads(path.read_text())


def wait_for(look, process, log):
    deadline = time.monotonic() + 300
    while not look():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


def at_a_stage(folder, stage):
    """Whether the run makes this stage now."""
    return any(json.loads(path.read_text())["stage"].startswith(stage) for path in folder.glob("*/state.json"))


@pytest.fixture
def begun(finished, profile, spawn, tmp_path):
    """Starts a command in a folder whose store lacks the warm starts and what follows, and waits until it makes the first."""

    def start(*arguments):
        folder, log = tmp_path / "runs", tmp_path / "log"
        shutil.copytree(finished[0] / "store", folder / "store")
        for entry in list((folder / "store").glob("warm_start-*")):
            shutil.rmtree(entry)
        command, *options = arguments
        process = spawn(command, profile, "--run-dir", folder, *options, log=log)
        wait_for(lambda: at_a_stage(folder, "warm_start"), process, log)
        return process, folder, log

    return start


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.slow
def test_retrain_stops_at_a_safe_point_and_resumes(number, code, begun, finished, profile, command):
    process, folder, log = begun("retrain")
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, number)
    assert process.wait(timeout=SECONDS) == code, log.read_text()
    assert not psutil.wait_procs(children, timeout=5)[1]
    assert f"stopped ({number.name}) at warm_start" in log.read_text().replace("\n", " ")
    state = state_of(folder)
    assert state["state"] == "stopped" and "the same command" in state["message"]
    assert [(kind, name) for kind, name, _ in flow_runs(folder)] == [("CANCELLED", "Stopped")]
    assert flow_runs(folder)[0][2] == state["message"]
    with sqlite3.connect(folder / "mlflow.db") as connection:
        assert connection.execute("select status from runs").fetchall() == [("KILLED",)]
    status = json.loads(command("runs", "status", profile, "--run-dir", folder, "--json").stdout)
    assert (status["runs"][0]["state"], status["runs"][0]["starts"]) == ("stopped", 1)

    resumed = command("retrain", profile, "--run-dir", folder, "--json")
    assert resumed.returncode in (0, 3), resumed.stderr
    assert json.loads(resumed.stdout)["success"] == finished[2]["success"]
    verdict = finished[2]["gate"]["verdict"]
    assert state_of(folder)["state"] == verdict and state_of(folder)["starts"] == 2
    assert [name for _, name, _ in flow_runs(folder)] == ["Stopped", verdict.capitalize()]


@pytest.mark.slow
def test_deploy_tells_its_run_first_and_all_ends(begun):
    process, folder, log = begun("deploy", "--interval", 20)
    children = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    assert process.wait(timeout=SECONDS) == 143, log.read_text()
    assert not psutil.wait_procs(children, timeout=5)[1]
    assert [(kind, name) for kind, name, _ in flow_runs(folder)] == [("CANCELLED", "Stopped")], log.read_text()
    assert state_of(folder)["state"] == "stopped"
    assert "ConnectError" not in log.read_text()


@pytest.mark.slow
def test_a_killed_deploy_leaves_no_process_and_no_lock_and_the_next_start_mends_the_state(
    begun, profile, command, spawn, tmp_path
):
    process, folder, _ = begun("deploy", "--interval", 20)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    assert not psutil.wait_procs(children, timeout=SECONDS)[1], "an orphan"
    assert "RUNNING" in [kind for kind, _, _ in flow_runs(folder)]
    status = json.loads(command("runs", "status", profile, "--run-dir", folder, "--json").stdout)
    assert status["runs"][0]["state"] == "crashed" and "without a word" in status["runs"][0]["message"]

    log = tmp_path / "again"
    again = spawn("deploy", profile, "--run-dir", folder, "--interval", 20, log=log)
    wait_for(lambda: "are Crashed now" in log.read_text(), again, log)
    crashed = [message for kind, _, message in flow_runs(folder) if kind == "CRASHED"]
    assert len(crashed) == 1 and "the next run resumes it" in crashed[0]


@pytest.mark.slow
def test_a_signal_that_comes_when_the_run_is_complete_changes_nothing(begun, finished):
    process, folder, log = begun("retrain")
    wait_for(lambda: list(folder.glob("*/summary.json")), process, log)
    process.terminate()
    verdict = finished[2]["gate"]["verdict"]
    assert process.wait(timeout=SECONDS) == (3 if verdict == "refused" else 0), log.read_text()
    assert state_of(folder)["state"] == verdict
    assert [name for _, name, _ in flow_runs(folder)] == [verdict.capitalize()]


@pytest.mark.parametrize("command", ["retrain", "deploy"])
@pytest.mark.slow
def test_a_signal_before_the_run_has_begun_ends_the_command_in_order(command, profile, spawn, tmp_path):
    log, folder = tmp_path / "log", tmp_path / "runs"
    options = ("--cron", "0 3 1 1 *") if command == "deploy" else ()
    process = spawn(command, profile, "--run-dir", folder, *options, log=log)
    wait_for(lambda: (folder / "prefect-server.log").is_file(), process, log)
    children = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    assert process.wait(timeout=SECONDS) == 143, log.read_text()
    assert not psutil.wait_procs(children, timeout=5)[1]
    assert "stopped (SIGTERM)" in log.read_text()


@pytest.mark.slow
def test_a_signal_to_a_group_whose_run_is_starting_stops_it_and_does_not_crash_it(profile, environment, finished, tmp_path):
    folder, log = tmp_path / "runs", tmp_path / "log"
    shutil.copytree(finished[0] / "store", folder / "store")
    command = [sys.executable, "-m", "flows.cli", "deploy", str(profile), "--run-dir", str(folder), "--interval", "5"]
    with log.open("w") as stream:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=stream, stderr=stream, start_new_session=True)
    try:
        wait_for(lambda: flow_run_states(folder) == ["PENDING"], process, log)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(timeout=SECONDS + 5) == 143, log.read_text()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert [(kind, name) for kind, name, _ in flow_runs(folder)] == [("CANCELLED", "Stopped")], log.read_text()
    assert "before the run began" in flow_runs(folder)[0][2]
