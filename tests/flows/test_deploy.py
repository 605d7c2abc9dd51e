"""The schedule on a real Prefect server: a tick without new traces is skipped with its reason; runs by hand go on beside it."""

import contextlib
import json
import re
import shutil
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from tracewheel.core.processes import free_port

PATIENCE = 300


def flow_runs(address):
    request = urllib.request.Request(
        f"{address}/flow_runs/filter", data=b'{"sort": "EXPECTED_START_TIME_ASC"}', headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply)


def read(address):
    with urllib.request.urlopen(address, timeout=30) as reply:
        return json.load(reply)


def wait_for(look, process, log):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        found = look()
        if found:
            return found
        time.sleep(1)
    raise AssertionError(log.read_text())


def databases(process):
    """The databases that a command's own Prefect server has open."""
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(process.pid).children()
        (server,) = [child for child in children if "flows.deploy.server" in child.cmdline()] or [None]
        return {Path(file.path) for file in server.open_files() if file.path.endswith(".db")} if server else set()
    return set()


@pytest.mark.slow
def test_two_ticks_fire_the_second_is_skipped_and_a_run_by_hand_disturbs_nothing(finished, profile, spawn, tmp_path):
    whole, _, summary = finished
    folder, log = tmp_path / "runs", tmp_path / "deploy.log"
    shutil.copytree(whole / "store", folder / "store")  # the first tick makes a run from stored stages
    port = free_port()
    process = spawn("deploy", profile, "--interval", 5, "--run-dir", folder, "--port", port, log=log)
    address = wait_for(lambda: re.search(r"Prefect server: (\S+)", log.read_text()), process, log).group(1)
    assert address == f"http://127.0.0.1:{port}/api"
    assert read(f"http://127.0.0.1:{port}/ui-settings")["api_url"] == address  # what its pages ask

    def ended():
        done = [run for run in flow_runs(address) if run["state_type"] in ("COMPLETED", "FAILED", "CRASHED")]
        return done if len(done) >= 2 else None

    first, second = wait_for(ended, process, log)[:2]
    verdict = summary["gate"]["verdict"]
    assert (first["state_type"], first["state_name"]) == ("COMPLETED", verdict.capitalize()), log.read_text()
    assert f"run {summary['run_id']} {verdict} against" in first["state"]["message"]
    assert (second["state_type"], second["state_name"]) == ("COMPLETED", "Skipped")
    assert second["state"]["message"] == f"no new traces since run {summary['run_id']}, which is complete"
    assert first["parameters"]["scheduled"]
    assert json.loads((folder / summary["run_id"] / "summary.json").read_text())["success"] == summary["success"]

    by_hand, beside = spawn("retrain", profile, "--run-dir", folder, log=tmp_path / "by-hand.log"), set()
    while by_hand.poll() is None:
        beside |= databases(by_hand)
        time.sleep(0.2)
    assert by_hand.returncode in (0, 3), (tmp_path / "by-hand.log").read_text()
    assert len(beside) == 1 and databases(process) == {folder / ".prefect" / "prefect.db"} and beside != databases(process)
    before = len(flow_runs(address))
    wait_for(lambda: len(flow_runs(address)) > before, process, log)  # the schedule goes on
    assert all(run["parameters"]["scheduled"] for run in flow_runs(address))
    wait_for(lambda: not list((folder / ".prefect").glob("beside-*")), process, log)

    children = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    assert process.wait(timeout=60) == 143
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive
